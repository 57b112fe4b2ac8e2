from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STATE_UNSPECIFIED: _ClassVar[State]
    STATE_BLOCKED: _ClassVar[State]
    STATE_WAITING: _ClassVar[State]
    STATE_RUNNING: _ClassVar[State]
    STATE_DONE: _ClassVar[State]
    STATE_FAILED: _ClassVar[State]
    STATE_CANCELLED: _ClassVar[State]
    STATE_UNKNOWN: _ClassVar[State]
    STATE_SCHEDULED: _ClassVar[State]

class Stream(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STREAM_UNSPECIFIED: _ClassVar[Stream]
    STREAM_STDOUT: _ClassVar[Stream]
    STREAM_STDERR: _ClassVar[Stream]
    STREAM_METRICS: _ClassVar[Stream]
STATE_UNSPECIFIED: State
STATE_BLOCKED: State
STATE_WAITING: State
STATE_RUNNING: State
STATE_DONE: State
STATE_FAILED: State
STATE_CANCELLED: State
STATE_UNKNOWN: State
STATE_SCHEDULED: State
STREAM_UNSPECIFIED: Stream
STREAM_STDOUT: Stream
STREAM_STDERR: Stream
STREAM_METRICS: Stream

class Error(_message.Message):
    __slots__ = ("what", "because", "hint", "kind", "node")
    WHAT_FIELD_NUMBER: _ClassVar[int]
    BECAUSE_FIELD_NUMBER: _ClassVar[int]
    HINT_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    what: str
    because: str
    hint: str
    kind: str
    node: str
    def __init__(self, what: _Optional[str] = ..., because: _Optional[str] = ..., hint: _Optional[str] = ..., kind: _Optional[str] = ..., node: _Optional[str] = ...) -> None: ...

class SubmitRequest(_message.Message):
    __slots__ = ("job_id", "yaml", "json", "detached")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    YAML_FIELD_NUMBER: _ClassVar[int]
    JSON_FIELD_NUMBER: _ClassVar[int]
    DETACHED_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    yaml: str
    json: str
    detached: bool
    def __init__(self, job_id: _Optional[str] = ..., yaml: _Optional[str] = ..., json: _Optional[str] = ..., detached: _Optional[bool] = ...) -> None: ...

class SubmitReply(_message.Message):
    __slots__ = ("job", "needs", "notes")
    JOB_FIELD_NUMBER: _ClassVar[int]
    NEEDS_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    job: Job
    needs: str
    notes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, job: _Optional[_Union[Job, _Mapping]] = ..., needs: _Optional[str] = ..., notes: _Optional[_Iterable[str]] = ...) -> None: ...

class ChannelRequest(_message.Message):
    __slots__ = ("target", "items")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    target: ChannelTarget
    items: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, target: _Optional[_Union[ChannelTarget, _Mapping]] = ..., items: _Optional[_Iterable[bytes]] = ...) -> None: ...

class ChannelTarget(_message.Message):
    __slots__ = ("job", "task", "node", "port", "program", "input")
    JOB_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    job: str
    task: str
    node: str
    port: int
    program: ChannelProgram
    input: ChannelInput
    def __init__(self, job: _Optional[str] = ..., task: _Optional[str] = ..., node: _Optional[str] = ..., port: _Optional[int] = ..., program: _Optional[_Union[ChannelProgram, _Mapping]] = ..., input: _Optional[_Union[ChannelInput, _Mapping]] = ...) -> None: ...

class ChannelProgram(_message.Message):
    __slots__ = ("argv", "terminal")
    ARGV_FIELD_NUMBER: _ClassVar[int]
    TERMINAL_FIELD_NUMBER: _ClassVar[int]
    argv: _containers.RepeatedScalarFieldContainer[str]
    terminal: ChannelTerminal
    def __init__(self, argv: _Optional[_Iterable[str]] = ..., terminal: _Optional[_Union[ChannelTerminal, _Mapping]] = ...) -> None: ...

class ChannelInput(_message.Message):
    __slots__ = ("terminal", "after")
    TERMINAL_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    terminal: ChannelTerminal
    after: str
    def __init__(self, terminal: _Optional[_Union[ChannelTerminal, _Mapping]] = ..., after: _Optional[str] = ...) -> None: ...

class ChannelTerminal(_message.Message):
    __slots__ = ("rows", "columns", "type")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    rows: int
    columns: int
    type: str
    def __init__(self, rows: _Optional[int] = ..., columns: _Optional[int] = ..., type: _Optional[str] = ...) -> None: ...

class ChannelReply(_message.Message):
    __slots__ = ("items", "job", "task", "worker", "attempt")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedScalarFieldContainer[bytes]
    job: str
    task: str
    worker: str
    attempt: str
    def __init__(self, items: _Optional[_Iterable[bytes]] = ..., job: _Optional[str] = ..., task: _Optional[str] = ..., worker: _Optional[str] = ..., attempt: _Optional[str] = ...) -> None: ...

class GetRequest(_message.Message):
    __slots__ = ("job", "tasks_max", "task_states", "tasks_from")
    JOB_FIELD_NUMBER: _ClassVar[int]
    TASKS_MAX_FIELD_NUMBER: _ClassVar[int]
    TASK_STATES_FIELD_NUMBER: _ClassVar[int]
    TASKS_FROM_FIELD_NUMBER: _ClassVar[int]
    job: str
    tasks_max: int
    task_states: _containers.RepeatedScalarFieldContainer[State]
    tasks_from: int
    def __init__(self, job: _Optional[str] = ..., tasks_max: _Optional[int] = ..., task_states: _Optional[_Iterable[_Union[State, str]]] = ..., tasks_from: _Optional[int] = ...) -> None: ...

class ListRequest(_message.Message):
    __slots__ = ("active_only", "jobs_max", "active_max", "states", "name", "owner", "since_s", "interpreters")
    ACTIVE_ONLY_FIELD_NUMBER: _ClassVar[int]
    JOBS_MAX_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_MAX_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    SINCE_S_FIELD_NUMBER: _ClassVar[int]
    INTERPRETERS_FIELD_NUMBER: _ClassVar[int]
    active_only: bool
    jobs_max: int
    active_max: int
    states: _containers.RepeatedScalarFieldContainer[State]
    name: str
    owner: str
    since_s: float
    interpreters: bool
    def __init__(self, active_only: _Optional[bool] = ..., jobs_max: _Optional[int] = ..., active_max: _Optional[int] = ..., states: _Optional[_Iterable[_Union[State, str]]] = ..., name: _Optional[str] = ..., owner: _Optional[str] = ..., since_s: _Optional[float] = ..., interpreters: _Optional[bool] = ...) -> None: ...

class ListReply(_message.Message):
    __slots__ = ("jobs", "total")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[Job]
    total: int
    def __init__(self, jobs: _Optional[_Iterable[_Union[Job, _Mapping]]] = ..., total: _Optional[int] = ...) -> None: ...

class ListEverywhereRequest(_message.Message):
    __slots__ = ("list", "timeout_s")
    LIST_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    list: ListRequest
    timeout_s: float
    def __init__(self, list: _Optional[_Union[ListRequest, _Mapping]] = ..., timeout_s: _Optional[float] = ...) -> None: ...

class ListEverywhereReply(_message.Message):
    __slots__ = ("nodes", "unreached")
    NODES_FIELD_NUMBER: _ClassVar[int]
    UNREACHED_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[NodeJobs]
    unreached: int
    def __init__(self, nodes: _Optional[_Iterable[_Union[NodeJobs, _Mapping]]] = ..., unreached: _Optional[int] = ...) -> None: ...

class NodeJobs(_message.Message):
    __slots__ = ("node", "jobs", "total", "trouble")
    NODE_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    TROUBLE_FIELD_NUMBER: _ClassVar[int]
    node: NodeName
    jobs: _containers.RepeatedCompositeFieldContainer[Job]
    total: int
    trouble: Error
    def __init__(self, node: _Optional[_Union[NodeName, _Mapping]] = ..., jobs: _Optional[_Iterable[_Union[Job, _Mapping]]] = ..., total: _Optional[int] = ..., trouble: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class ForwardRequest(_message.Message):
    __slots__ = ("node", "method", "request")
    NODE_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    node: str
    method: str
    request: bytes
    def __init__(self, node: _Optional[str] = ..., method: _Optional[str] = ..., request: _Optional[bytes] = ...) -> None: ...

class ForwardReply(_message.Message):
    __slots__ = ("reply",)
    REPLY_FIELD_NUMBER: _ClassVar[int]
    reply: bytes
    def __init__(self, reply: _Optional[bytes] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: str
    def __init__(self, job: _Optional[str] = ...) -> None: ...

class Job(_message.Message):
    __slots__ = ("id", "name", "owner", "state", "reason", "priority", "submitted_s", "counts", "nodes", "exit_code", "tasks", "fraction", "number", "began_s", "ended_s", "objective", "steps", "more_steps", "schedule", "scheduled_by", "parent", "detached", "keepers")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    SUBMITTED_S_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    FRACTION_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    BEGAN_S_FIELD_NUMBER: _ClassVar[int]
    ENDED_S_FIELD_NUMBER: _ClassVar[int]
    OBJECTIVE_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    MORE_STEPS_FIELD_NUMBER: _ClassVar[int]
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    SCHEDULED_BY_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    DETACHED_FIELD_NUMBER: _ClassVar[int]
    KEEPERS_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    owner: str
    state: State
    reason: str
    priority: int
    submitted_s: float
    counts: Counts
    nodes: _containers.RepeatedCompositeFieldContainer[NodeName]
    exit_code: int
    tasks: _containers.RepeatedCompositeFieldContainer[Task]
    fraction: float
    number: int
    began_s: float
    ended_s: float
    objective: Objective
    steps: _containers.RepeatedCompositeFieldContainer[Step]
    more_steps: int
    schedule: Schedule
    scheduled_by: str
    parent: str
    detached: bool
    keepers: _containers.RepeatedCompositeFieldContainer[Keeper]
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., owner: _Optional[str] = ..., state: _Optional[_Union[State, str]] = ..., reason: _Optional[str] = ..., priority: _Optional[int] = ..., submitted_s: _Optional[float] = ..., counts: _Optional[_Union[Counts, _Mapping]] = ..., nodes: _Optional[_Iterable[_Union[NodeName, _Mapping]]] = ..., exit_code: _Optional[int] = ..., tasks: _Optional[_Iterable[_Union[Task, _Mapping]]] = ..., fraction: _Optional[float] = ..., number: _Optional[int] = ..., began_s: _Optional[float] = ..., ended_s: _Optional[float] = ..., objective: _Optional[_Union[Objective, _Mapping]] = ..., steps: _Optional[_Iterable[_Union[Step, _Mapping]]] = ..., more_steps: _Optional[int] = ..., schedule: _Optional[_Union[Schedule, _Mapping]] = ..., scheduled_by: _Optional[str] = ..., parent: _Optional[str] = ..., detached: _Optional[bool] = ..., keepers: _Optional[_Iterable[_Union[Keeper, _Mapping]]] = ...) -> None: ...

class Keeper(_message.Message):
    __slots__ = ("node", "whole", "away")
    NODE_FIELD_NUMBER: _ClassVar[int]
    WHOLE_FIELD_NUMBER: _ClassVar[int]
    AWAY_FIELD_NUMBER: _ClassVar[int]
    node: NodeName
    whole: bool
    away: bool
    def __init__(self, node: _Optional[_Union[NodeName, _Mapping]] = ..., whole: _Optional[bool] = ..., away: _Optional[bool] = ...) -> None: ...

class Schedule(_message.Message):
    __slots__ = ("cron", "timezone", "next_s", "runs", "last", "skipped")
    CRON_FIELD_NUMBER: _ClassVar[int]
    TIMEZONE_FIELD_NUMBER: _ClassVar[int]
    NEXT_S_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    cron: str
    timezone: str
    next_s: float
    runs: int
    last: str
    skipped: str
    def __init__(self, cron: _Optional[str] = ..., timezone: _Optional[str] = ..., next_s: _Optional[float] = ..., runs: _Optional[int] = ..., last: _Optional[str] = ..., skipped: _Optional[str] = ...) -> None: ...

class Step(_message.Message):
    __slots__ = ("name", "after", "counts", "argv", "recipe", "setup", "env", "secrets", "outputs", "image", "needs", "time_limit_s", "network", "gang_min", "driver", "python", "mounts", "caches")
    class EnvEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    ARGV_FIELD_NUMBER: _ClassVar[int]
    RECIPE_FIELD_NUMBER: _ClassVar[int]
    SETUP_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    SECRETS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    NEEDS_FIELD_NUMBER: _ClassVar[int]
    TIME_LIMIT_S_FIELD_NUMBER: _ClassVar[int]
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    GANG_MIN_FIELD_NUMBER: _ClassVar[int]
    DRIVER_FIELD_NUMBER: _ClassVar[int]
    PYTHON_FIELD_NUMBER: _ClassVar[int]
    MOUNTS_FIELD_NUMBER: _ClassVar[int]
    CACHES_FIELD_NUMBER: _ClassVar[int]
    name: str
    after: _containers.RepeatedScalarFieldContainer[str]
    counts: Counts
    argv: _containers.RepeatedScalarFieldContainer[str]
    recipe: str
    setup: _containers.RepeatedScalarFieldContainer[str]
    env: _containers.ScalarMap[str, str]
    secrets: _containers.RepeatedScalarFieldContainer[str]
    outputs: _containers.RepeatedScalarFieldContainer[str]
    image: str
    needs: str
    time_limit_s: float
    network: bool
    gang_min: int
    driver: str
    python: str
    mounts: _containers.RepeatedScalarFieldContainer[str]
    caches: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., after: _Optional[_Iterable[str]] = ..., counts: _Optional[_Union[Counts, _Mapping]] = ..., argv: _Optional[_Iterable[str]] = ..., recipe: _Optional[str] = ..., setup: _Optional[_Iterable[str]] = ..., env: _Optional[_Mapping[str, str]] = ..., secrets: _Optional[_Iterable[str]] = ..., outputs: _Optional[_Iterable[str]] = ..., image: _Optional[str] = ..., needs: _Optional[str] = ..., time_limit_s: _Optional[float] = ..., network: _Optional[bool] = ..., gang_min: _Optional[int] = ..., driver: _Optional[str] = ..., python: _Optional[str] = ..., mounts: _Optional[_Iterable[str]] = ..., caches: _Optional[_Iterable[str]] = ...) -> None: ...

class Objective(_message.Message):
    __slots__ = ("metric", "goal")
    METRIC_FIELD_NUMBER: _ClassVar[int]
    GOAL_FIELD_NUMBER: _ClassVar[int]
    metric: str
    goal: str
    def __init__(self, metric: _Optional[str] = ..., goal: _Optional[str] = ...) -> None: ...

class Counts(_message.Message):
    __slots__ = ("blocked", "waiting", "running", "done", "failed", "cancelled", "unknown")
    BLOCKED_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    blocked: int
    waiting: int
    running: int
    done: int
    failed: int
    cancelled: int
    unknown: int
    def __init__(self, blocked: _Optional[int] = ..., waiting: _Optional[int] = ..., running: _Optional[int] = ..., done: _Optional[int] = ..., failed: _Optional[int] = ..., cancelled: _Optional[int] = ..., unknown: _Optional[int] = ...) -> None: ...

class NodeName(_message.Message):
    __slots__ = ("id", "petname")
    ID_FIELD_NUMBER: _ClassVar[int]
    PETNAME_FIELD_NUMBER: _ClassVar[int]
    id: str
    petname: str
    def __init__(self, id: _Optional[str] = ..., petname: _Optional[str] = ...) -> None: ...

class Task(_message.Message):
    __slots__ = ("id", "state", "reason", "attempts", "exit_code", "nodes", "argv", "needs", "fraction", "metrics", "began_s", "ended_s", "recipe", "answers", "label", "params", "made")
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class ParamsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    ARGV_FIELD_NUMBER: _ClassVar[int]
    NEEDS_FIELD_NUMBER: _ClassVar[int]
    FRACTION_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    BEGAN_S_FIELD_NUMBER: _ClassVar[int]
    ENDED_S_FIELD_NUMBER: _ClassVar[int]
    RECIPE_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    PARAMS_FIELD_NUMBER: _ClassVar[int]
    MADE_FIELD_NUMBER: _ClassVar[int]
    id: str
    state: State
    reason: str
    attempts: int
    exit_code: int
    nodes: _containers.RepeatedCompositeFieldContainer[NodeName]
    argv: _containers.RepeatedScalarFieldContainer[str]
    needs: str
    fraction: float
    metrics: _containers.ScalarMap[str, float]
    began_s: float
    ended_s: float
    recipe: str
    answers: _containers.RepeatedCompositeFieldContainer[Verdict]
    label: str
    params: _containers.ScalarMap[str, str]
    made: str
    def __init__(self, id: _Optional[str] = ..., state: _Optional[_Union[State, str]] = ..., reason: _Optional[str] = ..., attempts: _Optional[int] = ..., exit_code: _Optional[int] = ..., nodes: _Optional[_Iterable[_Union[NodeName, _Mapping]]] = ..., argv: _Optional[_Iterable[str]] = ..., needs: _Optional[str] = ..., fraction: _Optional[float] = ..., metrics: _Optional[_Mapping[str, float]] = ..., began_s: _Optional[float] = ..., ended_s: _Optional[float] = ..., recipe: _Optional[str] = ..., answers: _Optional[_Iterable[_Union[Verdict, _Mapping]]] = ..., label: _Optional[str] = ..., params: _Optional[_Mapping[str, str]] = ..., made: _Optional[str] = ...) -> None: ...

class LogsRequest(_message.Message):
    __slots__ = ("job", "task", "follow", "stream", "all_attempts", "last_bytes", "last_lines", "since_s", "times")
    JOB_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    ALL_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    LAST_BYTES_FIELD_NUMBER: _ClassVar[int]
    LAST_LINES_FIELD_NUMBER: _ClassVar[int]
    SINCE_S_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    job: str
    task: str
    follow: bool
    stream: Stream
    all_attempts: bool
    last_bytes: int
    last_lines: int
    since_s: float
    times: bool
    def __init__(self, job: _Optional[str] = ..., task: _Optional[str] = ..., follow: _Optional[bool] = ..., stream: _Optional[_Union[Stream, str]] = ..., all_attempts: _Optional[bool] = ..., last_bytes: _Optional[int] = ..., last_lines: _Optional[int] = ..., since_s: _Optional[float] = ..., times: _Optional[bool] = ...) -> None: ...

class LogTime(_message.Message):
    __slots__ = ("offset", "at_s")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    AT_S_FIELD_NUMBER: _ClassVar[int]
    offset: int
    at_s: float
    def __init__(self, offset: _Optional[int] = ..., at_s: _Optional[float] = ...) -> None: ...

class LogPiece(_message.Message):
    __slots__ = ("task", "stream", "attempt", "offset", "data", "times", "missing")
    TASK_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    task: str
    stream: Stream
    attempt: int
    offset: int
    data: bytes
    times: _containers.RepeatedCompositeFieldContainer[LogTime]
    missing: str
    def __init__(self, task: _Optional[str] = ..., stream: _Optional[_Union[Stream, str]] = ..., attempt: _Optional[int] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ..., times: _Optional[_Iterable[_Union[LogTime, _Mapping]]] = ..., missing: _Optional[str] = ...) -> None: ...

class CancelRequest(_message.Message):
    __slots__ = ("job", "reason", "task")
    JOB_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    job: str
    reason: str
    task: str
    def __init__(self, job: _Optional[str] = ..., reason: _Optional[str] = ..., task: _Optional[str] = ...) -> None: ...

class UsageRequest(_message.Message):
    __slots__ = ("since_s", "by")
    SINCE_S_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    since_s: float
    by: str
    def __init__(self, since_s: _Optional[float] = ..., by: _Optional[str] = ...) -> None: ...

class UsageRow(_message.Message):
    __slots__ = ("kind", "owner", "key", "name", "cpu_s", "gpu_s", "away_cpu_s", "away_gpu_s")
    KIND_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CPU_S_FIELD_NUMBER: _ClassVar[int]
    GPU_S_FIELD_NUMBER: _ClassVar[int]
    AWAY_CPU_S_FIELD_NUMBER: _ClassVar[int]
    AWAY_GPU_S_FIELD_NUMBER: _ClassVar[int]
    kind: str
    owner: str
    key: str
    name: str
    cpu_s: float
    gpu_s: float
    away_cpu_s: float
    away_gpu_s: float
    def __init__(self, kind: _Optional[str] = ..., owner: _Optional[str] = ..., key: _Optional[str] = ..., name: _Optional[str] = ..., cpu_s: _Optional[float] = ..., gpu_s: _Optional[float] = ..., away_cpu_s: _Optional[float] = ..., away_gpu_s: _Optional[float] = ...) -> None: ...

class UsageReply(_message.Message):
    __slots__ = ("rows",)
    ROWS_FIELD_NUMBER: _ClassVar[int]
    rows: _containers.RepeatedCompositeFieldContainer[UsageRow]
    def __init__(self, rows: _Optional[_Iterable[_Union[UsageRow, _Mapping]]] = ...) -> None: ...

class RemoveRequest(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: str
    def __init__(self, job: _Optional[str] = ...) -> None: ...

class RemoveReply(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: Job
    def __init__(self, job: _Optional[_Union[Job, _Mapping]] = ...) -> None: ...

class CancelReply(_message.Message):
    __slots__ = ("job", "had_ended")
    JOB_FIELD_NUMBER: _ClassVar[int]
    HAD_ENDED_FIELD_NUMBER: _ClassVar[int]
    job: Job
    had_ended: bool
    def __init__(self, job: _Optional[_Union[Job, _Mapping]] = ..., had_ended: _Optional[bool] = ...) -> None: ...

class RetryRequest(_message.Message):
    __slots__ = ("job", "job_id", "failed_only")
    JOB_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    FAILED_ONLY_FIELD_NUMBER: _ClassVar[int]
    job: str
    job_id: str
    failed_only: bool
    def __init__(self, job: _Optional[str] = ..., job_id: _Optional[str] = ..., failed_only: _Optional[bool] = ...) -> None: ...

class ExplainRequest(_message.Message):
    __slots__ = ("job", "task")
    JOB_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    job: str
    task: str
    def __init__(self, job: _Optional[str] = ..., task: _Optional[str] = ...) -> None: ...

class ExplainReply(_message.Message):
    __slots__ = ("job_id", "tasks", "more")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    tasks: _containers.RepeatedCompositeFieldContainer[TaskExplanation]
    more: int
    def __init__(self, job_id: _Optional[str] = ..., tasks: _Optional[_Iterable[_Union[TaskExplanation, _Mapping]]] = ..., more: _Optional[int] = ...) -> None: ...

class TaskExplanation(_message.Message):
    __slots__ = ("task", "state", "why", "nodes", "refused", "rejected", "fitting", "helps", "needs", "cached", "answers", "label")
    TASK_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    FITTING_FIELD_NUMBER: _ClassVar[int]
    HELPS_FIELD_NUMBER: _ClassVar[int]
    NEEDS_FIELD_NUMBER: _ClassVar[int]
    CACHED_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    task: str
    state: State
    why: _containers.RepeatedScalarFieldContainer[str]
    nodes: _containers.RepeatedCompositeFieldContainer[NodeName]
    refused: _containers.RepeatedCompositeFieldContainer[Verdict]
    rejected: _containers.RepeatedCompositeFieldContainer[Verdict]
    fitting: int
    helps: _containers.RepeatedScalarFieldContainer[str]
    needs: str
    cached: _containers.RepeatedScalarFieldContainer[str]
    answers: _containers.RepeatedCompositeFieldContainer[Verdict]
    label: str
    def __init__(self, task: _Optional[str] = ..., state: _Optional[_Union[State, str]] = ..., why: _Optional[_Iterable[str]] = ..., nodes: _Optional[_Iterable[_Union[NodeName, _Mapping]]] = ..., refused: _Optional[_Iterable[_Union[Verdict, _Mapping]]] = ..., rejected: _Optional[_Iterable[_Union[Verdict, _Mapping]]] = ..., fitting: _Optional[int] = ..., helps: _Optional[_Iterable[str]] = ..., needs: _Optional[str] = ..., cached: _Optional[_Iterable[str]] = ..., answers: _Optional[_Iterable[_Union[Verdict, _Mapping]]] = ..., label: _Optional[str] = ...) -> None: ...

class Verdict(_message.Message):
    __slots__ = ("node", "reason")
    NODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    node: NodeName
    reason: str
    def __init__(self, node: _Optional[_Union[NodeName, _Mapping]] = ..., reason: _Optional[str] = ...) -> None: ...

class PlanRequest(_message.Message):
    __slots__ = ("yaml", "json")
    YAML_FIELD_NUMBER: _ClassVar[int]
    JSON_FIELD_NUMBER: _ClassVar[int]
    yaml: str
    json: str
    def __init__(self, yaml: _Optional[str] = ..., json: _Optional[str] = ...) -> None: ...

class PlanReply(_message.Message):
    __slots__ = ("groups", "more", "needs", "fits_now", "schedule")
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    NEEDS_FIELD_NUMBER: _ClassVar[int]
    FITS_NOW_FIELD_NUMBER: _ClassVar[int]
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[GroupPlan]
    more: int
    needs: str
    fits_now: bool
    schedule: Schedule
    def __init__(self, groups: _Optional[_Iterable[_Union[GroupPlan, _Mapping]]] = ..., more: _Optional[int] = ..., needs: _Optional[str] = ..., fits_now: _Optional[bool] = ..., schedule: _Optional[_Union[Schedule, _Mapping]] = ...) -> None: ...

class GroupPlan(_message.Message):
    __slots__ = ("group", "tasks", "needs", "least", "room", "prospects", "more", "helps", "after", "never", "network", "memory")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    NEEDS_FIELD_NUMBER: _ClassVar[int]
    LEAST_FIELD_NUMBER: _ClassVar[int]
    ROOM_FIELD_NUMBER: _ClassVar[int]
    PROSPECTS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    HELPS_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    NEVER_FIELD_NUMBER: _ClassVar[int]
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    group: str
    tasks: int
    needs: str
    least: int
    room: int
    prospects: _containers.RepeatedCompositeFieldContainer[Prospect]
    more: int
    helps: _containers.RepeatedScalarFieldContainer[str]
    after: _containers.RepeatedScalarFieldContainer[str]
    never: str
    network: _containers.RepeatedScalarFieldContainer[str]
    memory: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, group: _Optional[str] = ..., tasks: _Optional[int] = ..., needs: _Optional[str] = ..., least: _Optional[int] = ..., room: _Optional[int] = ..., prospects: _Optional[_Iterable[_Union[Prospect, _Mapping]]] = ..., more: _Optional[int] = ..., helps: _Optional[_Iterable[str]] = ..., after: _Optional[_Iterable[str]] = ..., never: _Optional[str] = ..., network: _Optional[_Iterable[str]] = ..., memory: _Optional[_Iterable[str]] = ...) -> None: ...

class Prospect(_message.Message):
    __slots__ = ("node", "when", "slots", "why")
    class When(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        WHEN_UNSPECIFIED: _ClassVar[Prospect.When]
        WHEN_NOW: _ClassVar[Prospect.When]
        WHEN_LATER: _ClassVar[Prospect.When]
        WHEN_NEVER: _ClassVar[Prospect.When]
    WHEN_UNSPECIFIED: Prospect.When
    WHEN_NOW: Prospect.When
    WHEN_LATER: Prospect.When
    WHEN_NEVER: Prospect.When
    NODE_FIELD_NUMBER: _ClassVar[int]
    WHEN_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    node: Node
    when: Prospect.When
    slots: int
    why: str
    def __init__(self, node: _Optional[_Union[Node, _Mapping]] = ..., when: _Optional[_Union[Prospect.When, str]] = ..., slots: _Optional[int] = ..., why: _Optional[str] = ...) -> None: ...

class EventsRequest(_message.Message):
    __slots__ = ("latest", "follow")
    LATEST_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    latest: int
    follow: bool
    def __init__(self, latest: _Optional[int] = ..., follow: _Optional[bool] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("number", "at_s", "what", "text", "job", "task", "node")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    AT_S_FIELD_NUMBER: _ClassVar[int]
    WHAT_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    number: int
    at_s: float
    what: str
    text: str
    job: str
    task: str
    node: NodeName
    def __init__(self, number: _Optional[int] = ..., at_s: _Optional[float] = ..., what: _Optional[str] = ..., text: _Optional[str] = ..., job: _Optional[str] = ..., task: _Optional[str] = ..., node: _Optional[_Union[NodeName, _Mapping]] = ...) -> None: ...

class MetricsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class MetricsReply(_message.Message):
    __slots__ = ("text",)
    TEXT_FIELD_NUMBER: _ClassVar[int]
    text: str
    def __init__(self, text: _Optional[str] = ...) -> None: ...

class CurvesRequest(_message.Message):
    __slots__ = ("job", "since_s")
    JOB_FIELD_NUMBER: _ClassVar[int]
    SINCE_S_FIELD_NUMBER: _ClassVar[int]
    job: str
    since_s: float
    def __init__(self, job: _Optional[str] = ..., since_s: _Optional[float] = ...) -> None: ...

class CurvesReply(_message.Message):
    __slots__ = ("curves",)
    CURVES_FIELD_NUMBER: _ClassVar[int]
    curves: _containers.RepeatedCompositeFieldContainer[Curve]
    def __init__(self, curves: _Optional[_Iterable[_Union[Curve, _Mapping]]] = ...) -> None: ...

class Curve(_message.Message):
    __slots__ = ("task", "name", "at_s", "steps", "values")
    TASK_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    AT_S_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    task: str
    name: str
    at_s: _containers.RepeatedScalarFieldContainer[float]
    steps: _containers.RepeatedScalarFieldContainer[float]
    values: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, task: _Optional[str] = ..., name: _Optional[str] = ..., at_s: _Optional[_Iterable[float]] = ..., steps: _Optional[_Iterable[float]] = ..., values: _Optional[_Iterable[float]] = ...) -> None: ...

class PingRequest(_message.Message):
    __slots__ = ("node", "timeout_s")
    NODE_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    node: str
    timeout_s: float
    def __init__(self, node: _Optional[str] = ..., timeout_s: _Optional[float] = ...) -> None: ...

class PingReply(_message.Message):
    __slots__ = ("node", "path", "rtt_s", "trouble")
    NODE_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    RTT_S_FIELD_NUMBER: _ClassVar[int]
    TROUBLE_FIELD_NUMBER: _ClassVar[int]
    node: NodeName
    path: str
    rtt_s: float
    trouble: str
    def __init__(self, node: _Optional[_Union[NodeName, _Mapping]] = ..., path: _Optional[str] = ..., rtt_s: _Optional[float] = ..., trouble: _Optional[str] = ...) -> None: ...

class NodesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class NodesReply(_message.Message):
    __slots__ = ("nodes", "warnings")
    NODES_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[Node]
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, nodes: _Optional[_Iterable[_Union[Node, _Mapping]]] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class Node(_message.Message):
    __slots__ = ("name", "self", "total", "free", "devices", "active", "draining", "drivers", "labels", "rtt_us", "worker", "path", "terms", "weaker", "networked", "standing", "used", "machine", "away_since_s", "away", "site", "bandwidth_bits_s", "taken", "lend", "lending", "others_cpu_milli", "withheld")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    SELF_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    FREE_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    DRIVERS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    RTT_US_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    TERMS_FIELD_NUMBER: _ClassVar[int]
    WEAKER_FIELD_NUMBER: _ClassVar[int]
    NETWORKED_FIELD_NUMBER: _ClassVar[int]
    STANDING_FIELD_NUMBER: _ClassVar[int]
    USED_FIELD_NUMBER: _ClassVar[int]
    MACHINE_FIELD_NUMBER: _ClassVar[int]
    AWAY_SINCE_S_FIELD_NUMBER: _ClassVar[int]
    AWAY_FIELD_NUMBER: _ClassVar[int]
    SITE_FIELD_NUMBER: _ClassVar[int]
    BANDWIDTH_BITS_S_FIELD_NUMBER: _ClassVar[int]
    TAKEN_FIELD_NUMBER: _ClassVar[int]
    LEND_FIELD_NUMBER: _ClassVar[int]
    LENDING_FIELD_NUMBER: _ClassVar[int]
    OTHERS_CPU_MILLI_FIELD_NUMBER: _ClassVar[int]
    WITHHELD_FIELD_NUMBER: _ClassVar[int]
    name: NodeName
    self: bool
    total: Amounts
    free: Amounts
    devices: _containers.RepeatedCompositeFieldContainer[Device]
    active: int
    draining: bool
    drivers: _containers.RepeatedScalarFieldContainer[str]
    labels: _containers.ScalarMap[str, str]
    rtt_us: int
    worker: bool
    path: str
    terms: str
    weaker: _containers.RepeatedScalarFieldContainer[str]
    networked: _containers.RepeatedScalarFieldContainer[str]
    standing: Standing
    used: Use
    machine: Amounts
    away_since_s: float
    away: str
    site: str
    bandwidth_bits_s: int
    taken: str
    lend: str
    lending: str
    others_cpu_milli: int
    withheld: Amounts
    def __init__(self_, name: _Optional[_Union[NodeName, _Mapping]] = ..., self: _Optional[bool] = ..., total: _Optional[_Union[Amounts, _Mapping]] = ..., free: _Optional[_Union[Amounts, _Mapping]] = ..., devices: _Optional[_Iterable[_Union[Device, _Mapping]]] = ..., active: _Optional[int] = ..., draining: _Optional[bool] = ..., drivers: _Optional[_Iterable[str]] = ..., labels: _Optional[_Mapping[str, str]] = ..., rtt_us: _Optional[int] = ..., worker: _Optional[bool] = ..., path: _Optional[str] = ..., terms: _Optional[str] = ..., weaker: _Optional[_Iterable[str]] = ..., networked: _Optional[_Iterable[str]] = ..., standing: _Optional[_Union[Standing, _Mapping]] = ..., used: _Optional[_Union[Use, _Mapping]] = ..., machine: _Optional[_Union[Amounts, _Mapping]] = ..., away_since_s: _Optional[float] = ..., away: _Optional[str] = ..., site: _Optional[str] = ..., bandwidth_bits_s: _Optional[int] = ..., taken: _Optional[str] = ..., lend: _Optional[str] = ..., lending: _Optional[str] = ..., others_cpu_milli: _Optional[int] = ..., withheld: _Optional[_Union[Amounts, _Mapping]] = ...) -> None: ...

class Use(_message.Message):
    __slots__ = ("at_s", "over_s", "cpu_milli", "memory_bytes", "disk_bytes", "read_bytes_s", "written_bytes_s", "received_bytes_s", "sent_bytes_s", "devices")
    AT_S_FIELD_NUMBER: _ClassVar[int]
    OVER_S_FIELD_NUMBER: _ClassVar[int]
    CPU_MILLI_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    DISK_BYTES_FIELD_NUMBER: _ClassVar[int]
    READ_BYTES_S_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_BYTES_S_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_BYTES_S_FIELD_NUMBER: _ClassVar[int]
    SENT_BYTES_S_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    at_s: float
    over_s: float
    cpu_milli: int
    memory_bytes: int
    disk_bytes: int
    read_bytes_s: int
    written_bytes_s: int
    received_bytes_s: int
    sent_bytes_s: int
    devices: _containers.RepeatedCompositeFieldContainer[DeviceUse]
    def __init__(self, at_s: _Optional[float] = ..., over_s: _Optional[float] = ..., cpu_milli: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., disk_bytes: _Optional[int] = ..., read_bytes_s: _Optional[int] = ..., written_bytes_s: _Optional[int] = ..., received_bytes_s: _Optional[int] = ..., sent_bytes_s: _Optional[int] = ..., devices: _Optional[_Iterable[_Union[DeviceUse, _Mapping]]] = ...) -> None: ...

class DeviceUse(_message.Message):
    __slots__ = ("id", "busy_milli", "memory_bytes")
    ID_FIELD_NUMBER: _ClassVar[int]
    BUSY_MILLI_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    id: str
    busy_milli: int
    memory_bytes: int
    def __init__(self, id: _Optional[str] = ..., busy_milli: _Optional[int] = ..., memory_bytes: _Optional[int] = ...) -> None: ...

class InspectRequest(_message.Message):
    __slots__ = ("node", "since_s")
    NODE_FIELD_NUMBER: _ClassVar[int]
    SINCE_S_FIELD_NUMBER: _ClassVar[int]
    node: str
    since_s: float
    def __init__(self, node: _Optional[str] = ..., since_s: _Optional[float] = ...) -> None: ...

class InspectReply(_message.Message):
    __slots__ = ("node", "history", "tasks", "rules", "trouble", "version", "up_s", "warnings")
    NODE_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    RULES_FIELD_NUMBER: _ClassVar[int]
    TROUBLE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    UP_S_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    node: Node
    history: _containers.RepeatedCompositeFieldContainer[Use]
    tasks: _containers.RepeatedCompositeFieldContainer[TaskThere]
    rules: _containers.RepeatedScalarFieldContainer[str]
    trouble: str
    version: str
    up_s: float
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, node: _Optional[_Union[Node, _Mapping]] = ..., history: _Optional[_Iterable[_Union[Use, _Mapping]]] = ..., tasks: _Optional[_Iterable[_Union[TaskThere, _Mapping]]] = ..., rules: _Optional[_Iterable[str]] = ..., trouble: _Optional[str] = ..., version: _Optional[str] = ..., up_s: _Optional[float] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class TaskThere(_message.Message):
    __slots__ = ("task", "job", "scheduler", "began_s")
    TASK_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    SCHEDULER_FIELD_NUMBER: _ClassVar[int]
    BEGAN_S_FIELD_NUMBER: _ClassVar[int]
    task: str
    job: str
    scheduler: NodeName
    began_s: float
    def __init__(self, task: _Optional[str] = ..., job: _Optional[str] = ..., scheduler: _Optional[_Union[NodeName, _Mapping]] = ..., began_s: _Optional[float] = ...) -> None: ...

class ForgetRequest(_message.Message):
    __slots__ = ("node",)
    NODE_FIELD_NUMBER: _ClassVar[int]
    node: str
    def __init__(self, node: _Optional[str] = ...) -> None: ...

class ForgetReply(_message.Message):
    __slots__ = ("node",)
    NODE_FIELD_NUMBER: _ClassVar[int]
    node: NodeName
    def __init__(self, node: _Optional[_Union[NodeName, _Mapping]] = ...) -> None: ...

class Standing(_message.Message):
    __slots__ = ("trust", "judged", "disagreed", "text")
    TRUST_FIELD_NUMBER: _ClassVar[int]
    JUDGED_FIELD_NUMBER: _ClassVar[int]
    DISAGREED_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    trust: str
    judged: int
    disagreed: int
    text: str
    def __init__(self, trust: _Optional[str] = ..., judged: _Optional[int] = ..., disagreed: _Optional[int] = ..., text: _Optional[str] = ...) -> None: ...

class Amounts(_message.Message):
    __slots__ = ("cpu_milli", "memory_bytes", "disk_bytes", "gpu_milli")
    CPU_MILLI_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    DISK_BYTES_FIELD_NUMBER: _ClassVar[int]
    GPU_MILLI_FIELD_NUMBER: _ClassVar[int]
    cpu_milli: int
    memory_bytes: int
    disk_bytes: int
    gpu_milli: int
    def __init__(self, cpu_milli: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., disk_bytes: _Optional[int] = ..., gpu_milli: _Optional[int] = ...) -> None: ...

class Device(_message.Message):
    __slots__ = ("id", "vendor", "model", "memory_bytes", "free_milli")
    ID_FIELD_NUMBER: _ClassVar[int]
    VENDOR_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    FREE_MILLI_FIELD_NUMBER: _ClassVar[int]
    id: str
    vendor: str
    model: str
    memory_bytes: int
    free_milli: int
    def __init__(self, id: _Optional[str] = ..., vendor: _Optional[str] = ..., model: _Optional[str] = ..., memory_bytes: _Optional[int] = ..., free_milli: _Optional[int] = ...) -> None: ...

class InfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class NodeInfo(_message.Message):
    __slots__ = ("name", "version", "pid", "shoal", "roles", "addresses", "api_address", "home", "up_s", "policy", "node", "not_isolated", "sandboxed", "jobs", "active_jobs", "network", "web_address", "web_port_was_taken", "far_address", "strangers", "task_network", "warnings", "web_print")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    SHOAL_FIELD_NUMBER: _ClassVar[int]
    ROLES_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    API_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    HOME_FIELD_NUMBER: _ClassVar[int]
    UP_S_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    NOT_ISOLATED_FIELD_NUMBER: _ClassVar[int]
    SANDBOXED_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_JOBS_FIELD_NUMBER: _ClassVar[int]
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    WEB_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    WEB_PORT_WAS_TAKEN_FIELD_NUMBER: _ClassVar[int]
    FAR_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    STRANGERS_FIELD_NUMBER: _ClassVar[int]
    TASK_NETWORK_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    WEB_PRINT_FIELD_NUMBER: _ClassVar[int]
    name: NodeName
    version: str
    pid: int
    shoal: str
    roles: _containers.RepeatedScalarFieldContainer[str]
    addresses: _containers.RepeatedScalarFieldContainer[str]
    api_address: str
    home: str
    up_s: float
    policy: str
    node: Node
    not_isolated: _containers.RepeatedScalarFieldContainer[str]
    sandboxed: bool
    jobs: int
    active_jobs: int
    network: NetworkInfo
    web_address: str
    web_port_was_taken: bool
    far_address: str
    strangers: str
    task_network: str
    warnings: _containers.RepeatedScalarFieldContainer[str]
    web_print: str
    def __init__(self, name: _Optional[_Union[NodeName, _Mapping]] = ..., version: _Optional[str] = ..., pid: _Optional[int] = ..., shoal: _Optional[str] = ..., roles: _Optional[_Iterable[str]] = ..., addresses: _Optional[_Iterable[str]] = ..., api_address: _Optional[str] = ..., home: _Optional[str] = ..., up_s: _Optional[float] = ..., policy: _Optional[str] = ..., node: _Optional[_Union[Node, _Mapping]] = ..., not_isolated: _Optional[_Iterable[str]] = ..., sandboxed: _Optional[bool] = ..., jobs: _Optional[int] = ..., active_jobs: _Optional[int] = ..., network: _Optional[_Union[NetworkInfo, _Mapping]] = ..., web_address: _Optional[str] = ..., web_port_was_taken: _Optional[bool] = ..., far_address: _Optional[str] = ..., strangers: _Optional[str] = ..., task_network: _Optional[str] = ..., warnings: _Optional[_Iterable[str]] = ..., web_print: _Optional[str] = ...) -> None: ...

class NetworkInfo(_message.Message):
    __slots__ = ("p2p", "relays", "gates", "links", "is_relayed")
    P2P_FIELD_NUMBER: _ClassVar[int]
    RELAYS_FIELD_NUMBER: _ClassVar[int]
    GATES_FIELD_NUMBER: _ClassVar[int]
    LINKS_FIELD_NUMBER: _ClassVar[int]
    IS_RELAYED_FIELD_NUMBER: _ClassVar[int]
    p2p: str
    relays: bool
    gates: _containers.RepeatedCompositeFieldContainer[Gate]
    links: int
    is_relayed: bool
    def __init__(self, p2p: _Optional[str] = ..., relays: _Optional[bool] = ..., gates: _Optional[_Iterable[_Union[Gate, _Mapping]]] = ..., links: _Optional[int] = ..., is_relayed: _Optional[bool] = ...) -> None: ...

class Gate(_message.Message):
    __slots__ = ("name", "path", "rtt_us", "trouble")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    RTT_US_FIELD_NUMBER: _ClassVar[int]
    TROUBLE_FIELD_NUMBER: _ClassVar[int]
    name: NodeName
    path: str
    rtt_us: int
    trouble: str
    def __init__(self, name: _Optional[_Union[NodeName, _Mapping]] = ..., path: _Optional[str] = ..., rtt_us: _Optional[int] = ..., trouble: _Optional[str] = ...) -> None: ...

class InviteRequest(_message.Message):
    __slots__ = ("role", "uses", "ttl_s", "quota_gpus", "quota_cpu_milli", "owner", "mine")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    USES_FIELD_NUMBER: _ClassVar[int]
    TTL_S_FIELD_NUMBER: _ClassVar[int]
    QUOTA_GPUS_FIELD_NUMBER: _ClassVar[int]
    QUOTA_CPU_MILLI_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    MINE_FIELD_NUMBER: _ClassVar[int]
    role: str
    uses: int
    ttl_s: float
    quota_gpus: int
    quota_cpu_milli: int
    owner: str
    mine: bool
    def __init__(self, role: _Optional[str] = ..., uses: _Optional[int] = ..., ttl_s: _Optional[float] = ..., quota_gpus: _Optional[int] = ..., quota_cpu_milli: _Optional[int] = ..., owner: _Optional[str] = ..., mine: _Optional[bool] = ...) -> None: ...

class InviteReply(_message.Message):
    __slots__ = ("text", "shoal", "addresses", "only_here")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    SHOAL_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    ONLY_HERE_FIELD_NUMBER: _ClassVar[int]
    text: str
    shoal: str
    addresses: _containers.RepeatedScalarFieldContainer[str]
    only_here: bool
    def __init__(self, text: _Optional[str] = ..., shoal: _Optional[str] = ..., addresses: _Optional[_Iterable[str]] = ..., only_here: _Optional[bool] = ...) -> None: ...

class RequestsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RequestsReply(_message.Message):
    __slots__ = ("shoal", "newcomers", "near")
    SHOAL_FIELD_NUMBER: _ClassVar[int]
    NEWCOMERS_FIELD_NUMBER: _ClassVar[int]
    NEAR_FIELD_NUMBER: _ClassVar[int]
    shoal: str
    newcomers: _containers.RepeatedCompositeFieldContainer[Newcomer]
    near: Near
    def __init__(self, shoal: _Optional[str] = ..., newcomers: _Optional[_Iterable[_Union[Newcomer, _Mapping]]] = ..., near: _Optional[_Union[Near, _Mapping]] = ...) -> None: ...

class Newcomer(_message.Message):
    __slots__ = ("name", "has", "code")
    NAME_FIELD_NUMBER: _ClassVar[int]
    HAS_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    name: NodeName
    has: str
    code: str
    def __init__(self, name: _Optional[_Union[NodeName, _Mapping]] = ..., has: _Optional[str] = ..., code: _Optional[str] = ...) -> None: ...

class Near(_message.Message):
    __slots__ = ("name", "shoal", "code", "state")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SHOAL_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    name: NodeName
    shoal: str
    code: str
    state: str
    def __init__(self, name: _Optional[_Union[NodeName, _Mapping]] = ..., shoal: _Optional[str] = ..., code: _Optional[str] = ..., state: _Optional[str] = ...) -> None: ...

class AcceptRequest(_message.Message):
    __slots__ = ("node", "decline", "mine", "code")
    NODE_FIELD_NUMBER: _ClassVar[int]
    DECLINE_FIELD_NUMBER: _ClassVar[int]
    MINE_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    node: str
    decline: bool
    mine: bool
    code: str
    def __init__(self, node: _Optional[str] = ..., decline: _Optional[bool] = ..., mine: _Optional[bool] = ..., code: _Optional[str] = ...) -> None: ...

class AcceptReply(_message.Message):
    __slots__ = ("node",)
    NODE_FIELD_NUMBER: _ClassVar[int]
    node: NodeName
    def __init__(self, node: _Optional[_Union[NodeName, _Mapping]] = ...) -> None: ...

class RevokeRequest(_message.Message):
    __slots__ = ("node",)
    NODE_FIELD_NUMBER: _ClassVar[int]
    node: str
    def __init__(self, node: _Optional[str] = ...) -> None: ...

class RevokeReply(_message.Message):
    __slots__ = ("node",)
    NODE_FIELD_NUMBER: _ClassVar[int]
    node: NodeName
    def __init__(self, node: _Optional[_Union[NodeName, _Mapping]] = ...) -> None: ...

class DrainRequest(_message.Message):
    __slots__ = ("grace_s", "undo")
    GRACE_S_FIELD_NUMBER: _ClassVar[int]
    UNDO_FIELD_NUMBER: _ClassVar[int]
    grace_s: float
    undo: bool
    def __init__(self, grace_s: _Optional[float] = ..., undo: _Optional[bool] = ...) -> None: ...

class DrainReply(_message.Message):
    __slots__ = ("node", "tasks")
    NODE_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    node: NodeName
    tasks: int
    def __init__(self, node: _Optional[_Union[NodeName, _Mapping]] = ..., tasks: _Optional[int] = ...) -> None: ...

class AllocationsRequest(_message.Message):
    __slots__ = ("verb", "name", "engine", "arguments", "time_limit_s", "idle_s", "max", "backlog", "shoal")
    VERB_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    TIME_LIMIT_S_FIELD_NUMBER: _ClassVar[int]
    IDLE_S_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_FIELD_NUMBER: _ClassVar[int]
    SHOAL_FIELD_NUMBER: _ClassVar[int]
    verb: str
    name: str
    engine: str
    arguments: _containers.RepeatedScalarFieldContainer[str]
    time_limit_s: float
    idle_s: float
    max: int
    backlog: int
    shoal: str
    def __init__(self, verb: _Optional[str] = ..., name: _Optional[str] = ..., engine: _Optional[str] = ..., arguments: _Optional[_Iterable[str]] = ..., time_limit_s: _Optional[float] = ..., idle_s: _Optional[float] = ..., max: _Optional[int] = ..., backlog: _Optional[int] = ..., shoal: _Optional[str] = ...) -> None: ...

class AllocationsReply(_message.Message):
    __slots__ = ("allocations", "refused", "command", "script", "only_here")
    ALLOCATIONS_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    SCRIPT_FIELD_NUMBER: _ClassVar[int]
    ONLY_HERE_FIELD_NUMBER: _ClassVar[int]
    allocations: _containers.RepeatedCompositeFieldContainer[AllocationView]
    refused: str
    command: str
    script: str
    only_here: bool
    def __init__(self, allocations: _Optional[_Iterable[_Union[AllocationView, _Mapping]]] = ..., refused: _Optional[str] = ..., command: _Optional[str] = ..., script: _Optional[str] = ..., only_here: _Optional[bool] = ...) -> None: ...

class AllocationView(_message.Message):
    __slots__ = ("name", "engine", "arguments", "time_limit_s", "idle_s", "max", "backlog", "state", "paused", "failures", "pilots", "log")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    TIME_LIMIT_S_FIELD_NUMBER: _ClassVar[int]
    IDLE_S_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    PILOTS_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    name: str
    engine: str
    arguments: _containers.RepeatedScalarFieldContainer[str]
    time_limit_s: float
    idle_s: float
    max: int
    backlog: int
    state: str
    paused: str
    failures: int
    pilots: _containers.RepeatedCompositeFieldContainer[PilotView]
    log: _containers.RepeatedCompositeFieldContainer[AllocationNote]
    def __init__(self, name: _Optional[str] = ..., engine: _Optional[str] = ..., arguments: _Optional[_Iterable[str]] = ..., time_limit_s: _Optional[float] = ..., idle_s: _Optional[float] = ..., max: _Optional[int] = ..., backlog: _Optional[int] = ..., state: _Optional[str] = ..., paused: _Optional[str] = ..., failures: _Optional[int] = ..., pilots: _Optional[_Iterable[_Union[PilotView, _Mapping]]] = ..., log: _Optional[_Iterable[_Union[AllocationNote, _Mapping]]] = ...) -> None: ...

class PilotView(_message.Message):
    __slots__ = ("number", "state", "native", "node")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    NATIVE_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    number: int
    state: str
    native: str
    node: NodeName
    def __init__(self, number: _Optional[int] = ..., state: _Optional[str] = ..., native: _Optional[str] = ..., node: _Optional[_Union[NodeName, _Mapping]] = ...) -> None: ...

class AllocationNote(_message.Message):
    __slots__ = ("at", "text")
    AT_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    at: float
    text: str
    def __init__(self, at: _Optional[float] = ..., text: _Optional[str] = ...) -> None: ...

class ShutdownRequest(_message.Message):
    __slots__ = ("grace_s", "leaves_because")
    GRACE_S_FIELD_NUMBER: _ClassVar[int]
    LEAVES_BECAUSE_FIELD_NUMBER: _ClassVar[int]
    grace_s: float
    leaves_because: str
    def __init__(self, grace_s: _Optional[float] = ..., leaves_because: _Optional[str] = ...) -> None: ...

class ShutdownReply(_message.Message):
    __slots__ = ("tasks", "active_jobs", "pid", "cancelled")
    TASKS_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_JOBS_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    tasks: int
    active_jobs: int
    pid: int
    cancelled: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, tasks: _Optional[int] = ..., active_jobs: _Optional[int] = ..., pid: _Optional[int] = ..., cancelled: _Optional[_Iterable[str]] = ...) -> None: ...

class CallsRequest(_message.Message):
    __slots__ = ("pools", "functions", "calls", "stops", "backlogs")
    POOLS_FIELD_NUMBER: _ClassVar[int]
    FUNCTIONS_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    STOPS_FIELD_NUMBER: _ClassVar[int]
    BACKLOGS_FIELD_NUMBER: _ClassVar[int]
    pools: _containers.RepeatedCompositeFieldContainer[CallPool]
    functions: _containers.RepeatedCompositeFieldContainer[CallFunction]
    calls: _containers.RepeatedCompositeFieldContainer[Call]
    stops: _containers.RepeatedScalarFieldContainer[int]
    backlogs: _containers.RepeatedCompositeFieldContainer[CallBacklog]
    def __init__(self, pools: _Optional[_Iterable[_Union[CallPool, _Mapping]]] = ..., functions: _Optional[_Iterable[_Union[CallFunction, _Mapping]]] = ..., calls: _Optional[_Iterable[_Union[Call, _Mapping]]] = ..., stops: _Optional[_Iterable[int]] = ..., backlogs: _Optional[_Iterable[_Union[CallBacklog, _Mapping]]] = ...) -> None: ...

class CallPool(_message.Message):
    __slots__ = ("id", "spec", "lanes_max", "idle_s", "never_s")
    ID_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    LANES_MAX_FIELD_NUMBER: _ClassVar[int]
    IDLE_S_FIELD_NUMBER: _ClassVar[int]
    NEVER_S_FIELD_NUMBER: _ClassVar[int]
    id: int
    spec: str
    lanes_max: int
    idle_s: float
    never_s: float
    def __init__(self, id: _Optional[int] = ..., spec: _Optional[str] = ..., lanes_max: _Optional[int] = ..., idle_s: _Optional[float] = ..., never_s: _Optional[float] = ...) -> None: ...

class CallFunction(_message.Message):
    __slots__ = ("id", "code")
    ID_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    id: int
    code: bytes
    def __init__(self, id: _Optional[int] = ..., code: _Optional[bytes] = ...) -> None: ...

class Call(_message.Message):
    __slots__ = ("id", "pool", "function", "payload", "more", "retries")
    ID_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    FUNCTION_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    RETRIES_FIELD_NUMBER: _ClassVar[int]
    id: int
    pool: int
    function: int
    payload: bytes
    more: bool
    retries: int
    def __init__(self, id: _Optional[int] = ..., pool: _Optional[int] = ..., function: _Optional[int] = ..., payload: _Optional[bytes] = ..., more: _Optional[bool] = ..., retries: _Optional[int] = ...) -> None: ...

class CallBacklog(_message.Message):
    __slots__ = ("pool", "waiting")
    POOL_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    pool: int
    waiting: int
    def __init__(self, pool: _Optional[int] = ..., waiting: _Optional[int] = ...) -> None: ...

class CallsReply(_message.Message):
    __slots__ = ("results", "pools")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    POOLS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[CallResult]
    pools: _containers.RepeatedCompositeFieldContainer[CallPoolState]
    def __init__(self, results: _Optional[_Iterable[_Union[CallResult, _Mapping]]] = ..., pools: _Optional[_Iterable[_Union[CallPoolState, _Mapping]]] = ...) -> None: ...

class CallResult(_message.Message):
    __slots__ = ("id", "kind", "payload", "more", "part", "own")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[CallResult.Kind]
        KIND_VALUE: _ClassVar[CallResult.Kind]
        KIND_RAISED: _ClassVar[CallResult.Kind]
        KIND_LOST: _ClassVar[CallResult.Kind]
        KIND_REFUSED: _ClassVar[CallResult.Kind]
    KIND_UNSPECIFIED: CallResult.Kind
    KIND_VALUE: CallResult.Kind
    KIND_RAISED: CallResult.Kind
    KIND_LOST: CallResult.Kind
    KIND_REFUSED: CallResult.Kind
    ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    OWN_FIELD_NUMBER: _ClassVar[int]
    id: int
    kind: CallResult.Kind
    payload: bytes
    more: bool
    part: int
    own: bool
    def __init__(self, id: _Optional[int] = ..., kind: _Optional[_Union[CallResult.Kind, str]] = ..., payload: _Optional[bytes] = ..., more: _Optional[bool] = ..., part: _Optional[int] = ..., own: _Optional[bool] = ...) -> None: ...

class CallPoolState(_message.Message):
    __slots__ = ("id", "credit", "lanes", "hired")
    ID_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    LANES_FIELD_NUMBER: _ClassVar[int]
    HIRED_FIELD_NUMBER: _ClassVar[int]
    id: int
    credit: int
    lanes: int
    hired: int
    def __init__(self, id: _Optional[int] = ..., credit: _Optional[int] = ..., lanes: _Optional[int] = ..., hired: _Optional[int] = ...) -> None: ...

class MissingBlobsRequest(_message.Message):
    __slots__ = ("blobs",)
    BLOBS_FIELD_NUMBER: _ClassVar[int]
    blobs: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, blobs: _Optional[_Iterable[str]] = ...) -> None: ...

class MissingBlobsReply(_message.Message):
    __slots__ = ("missing", "salt")
    MISSING_FIELD_NUMBER: _ClassVar[int]
    SALT_FIELD_NUMBER: _ClassVar[int]
    missing: _containers.RepeatedScalarFieldContainer[str]
    salt: bytes
    def __init__(self, missing: _Optional[_Iterable[str]] = ..., salt: _Optional[bytes] = ...) -> None: ...

class BlobPart(_message.Message):
    __slots__ = ("blob", "data")
    BLOB_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    blob: str
    data: bytes
    def __init__(self, blob: _Optional[str] = ..., data: _Optional[bytes] = ...) -> None: ...

class PutBlobsReply(_message.Message):
    __slots__ = ("blobs", "bytes")
    BLOBS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    blobs: int
    bytes: int
    def __init__(self, blobs: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class GetBlobsRequest(_message.Message):
    __slots__ = ("blobs",)
    BLOBS_FIELD_NUMBER: _ClassVar[int]
    blobs: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, blobs: _Optional[_Iterable[str]] = ...) -> None: ...

class OutputsRequest(_message.Message):
    __slots__ = ("job", "task")
    JOB_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    job: str
    task: str
    def __init__(self, job: _Optional[str] = ..., task: _Optional[str] = ...) -> None: ...

class OutputsReply(_message.Message):
    __slots__ = ("job_id", "tasks")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    tasks: _containers.RepeatedCompositeFieldContainer[TaskOutputs]
    def __init__(self, job_id: _Optional[str] = ..., tasks: _Optional[_Iterable[_Union[TaskOutputs, _Mapping]]] = ...) -> None: ...

class TaskOutputs(_message.Message):
    __slots__ = ("task", "blob", "tree", "patterns", "checkpoint", "folder")
    TASK_FIELD_NUMBER: _ClassVar[int]
    BLOB_FIELD_NUMBER: _ClassVar[int]
    TREE_FIELD_NUMBER: _ClassVar[int]
    PATTERNS_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    FOLDER_FIELD_NUMBER: _ClassVar[int]
    task: str
    blob: str
    tree: bytes
    patterns: _containers.RepeatedScalarFieldContainer[str]
    checkpoint: bool
    folder: str
    def __init__(self, task: _Optional[str] = ..., blob: _Optional[str] = ..., tree: _Optional[bytes] = ..., patterns: _Optional[_Iterable[str]] = ..., checkpoint: _Optional[bool] = ..., folder: _Optional[str] = ...) -> None: ...

class SetSecretRequest(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class SetSecretReply(_message.Message):
    __slots__ = ("replaced",)
    REPLACED_FIELD_NUMBER: _ClassVar[int]
    replaced: bool
    def __init__(self, replaced: _Optional[bool] = ...) -> None: ...

class ListSecretsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListSecretsReply(_message.Message):
    __slots__ = ("names",)
    NAMES_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, names: _Optional[_Iterable[str]] = ...) -> None: ...

class RemoveSecretRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class RemoveSecretReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RotateTokenRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RotateTokenReply(_message.Message):
    __slots__ = ("path",)
    PATH_FIELD_NUMBER: _ClassVar[int]
    path: str
    def __init__(self, path: _Optional[str] = ...) -> None: ...
