"""A job as it is scheduled: groups of tasks with profiles, all known upfront.

`spec.py` holds what people write; `derive.py` turns that into these values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec
from msgspec import Meta

from shoal.model.ids import BlobId, GroupId, JobId, NodeId, OwnerId, TaskId
from shoal.model.resources import Profile
from shoal.model.text.bounds import (
    ENV_MAX,
    FLOAT_MAX,
    INT64_MAX,
    OUTPUTS_MAX,
    PACKAGES_MAX,
    PARAMS_MAX,
    PROFILES_MAX,
    SECRETS_MAX,
    Argument,
    Arguments,
    BelowPath,
    Count,
    Lent,
    Name,
    PathText,
    Seconds,
    Value,
)
from shoal.model.text.shortages import DATA, PYTHON

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Scalar = (
    Value
    | Annotated[int, Meta(ge=-INT64_MAX, le=INT64_MAX)]
    | Annotated[float, Meta(ge=-FLOAT_MAX, le=FLOAT_MAX)]
    | bool
)
"""A parameter or a result of a task. A float is finite."""

PRIORITY_MIN: Final = -100
PRIORITY_MAX: Final = 100

JobState = Literal["active", "done", "failed", "cancelled", "unknown"]
"""A job is active until every task has ended; the worst end of a task is its own."""

TaskState = Literal[
    "blocked", "waiting", "running", "done", "failed", "cancelled", "unknown"
]
"""Blocked: its group needs another that has not ended. The last four are ends."""

SameLeaf = Literal["no", "prefer", "require"]

Stdin = Literal["none", "pipe", "terminal"]
"""What a task reads as its standard input: nothing, or what a user sends it."""

DEFAULT_ZONE: Final = "UTC"

INDEX: Final = "index"
"""The param, and the placeholder, that tells the tasks of an array apart."""

NeedSource = Literal["spec", "recipe", "runs"]
"""Who says what a task needs: its spec, an estimate, or an earlier run of the same."""

ENDS: Final = frozenset[TaskState]({"done", "failed", "cancelled", "unknown"})


class Retry(msgspec.Struct, frozen=True):
    """When and how often a failed task is retried.

    `on` holds "worker-lost", "exit:N" and "failed" (any exit but 0). Failures are
    counted anew from each new checkpoint. Losing a worker is bounded by the crash limit
    as well; preemption is never counted.
    """

    max: int = 3
    on: tuple[str, ...] = ("worker-lost",)


class PythonNeed(msgspec.Struct, frozen=True, omit_defaults=True):
    """The Python environment that a task runs in.

    Either the worker offers it by `name`, or it is made there of `packages` or of
    `files`: a tree with `requirements.txt`, or with `pyproject.toml` and its lock.
    `digest` names what is in these files, so that two trees of the same are one.
    """

    name: Name = ""
    version: Name = ""  # of Python; empty: that of the worker
    packages: Annotated[tuple[Value, ...], Meta(max_length=PACKAGES_MAX)] = ()
    files: PathText = ""
    digest: Name = ""

    @property
    def is_made(self) -> bool:
        """Whether a worker makes it, and does not have it anyway."""
        return bool(self.packages or self.files or self.version)


class Work(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a driver runs, before rank, index and params make it one task's own."""

    driver: Name = "process"
    argv: Arguments = ()
    setup: Arguments = ()
    env: Annotated[dict[Name, Argument], Meta(max_length=ENV_MAX)] = {}
    secrets: Annotated[tuple[Name, ...], Meta(max_length=SECRETS_MAX)] = ()
    image: PathText = ""
    workdir: PathText = ""
    outputs: Annotated[tuple[BelowPath, ...], Meta(max_length=OUTPUTS_MAX)] = ()
    network: bool = False
    recipe: Name = ""  # a built-in program that gets the params, instead of an argv
    keep_stdout: bool = False  # all of it is an output too
    python: PythonNeed = PythonNeed()
    mounts: Lent = ()  # folders that the worker shares, by name
    caches: Lent = ()  # folders that last on a worker, one of each name for each owner
    stdin: Stdin = "none"

    @property
    def uses(self) -> tuple[str, ...]:
        """What a worker must lend to run this."""
        named = (f"{PYTHON}{self.python.name}",) if self.python.name else ()
        return (*named, *(f"{DATA}{name}" for name in self.mounts))


class Input(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Outputs of an earlier task, and the folder below the work directory they go to.

    Without a folder they lie where that task wrote them.
    """

    tree: BlobId
    folder: BelowPath = ""


class Task(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One process of a job. `profiles` are alternatives, the favourite first.

    Memory that an earlier run took is room to find for it, and no limit.
    """

    id: TaskId
    job: JobId
    group: GroupId
    index: Count = 0  # place in its group, from 0; the rank in a gang
    size: Count = 1  # how many tasks the group has; the world size of a gang
    params: Annotated[dict[Name, Scalar], Meta(max_length=PARAMS_MAX)] = {}
    work: Work = Work()
    profiles: Annotated[tuple[Profile, ...], Meta(max_length=PROFILES_MAX)] = (
        Profile(),
    )
    time_limit_s: Seconds | None = None
    grace_s: Seconds = 10.0  # between the notice to stop and the kill
    label: Name = ""  # which point of a sweep or array it is, if it is one
    alone: bool = False  # no other task of its gang runs on its worker
    memory_from: NeedSource = "spec"
    gpu_memory_from: NeedSource = "spec"


class TaskArray(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The tasks of a large array, which differ in their index alone.

    Each is derived when somebody needs it; nothing is kept of it. `first` is the first
    one, whole. `words` are the words of the command, cut where the index stands.
    """

    first: Task
    count: Count
    start: Count = 0  # the index of the first
    step: Count = 1
    words: tuple[Arguments, ...] = ()  # none: the command is the same for all

    def __len__(self) -> int:
        """Return how many tasks there are."""
        return self.count

    def __iter__(self) -> Iterator[Task]:
        """Derive all tasks, in order."""
        return map(self.__getitem__, range(self.count))

    def __getitem__(self, place: int) -> Task:
        """Derive the task at a place, which counts from 0."""
        if place == 0:
            return self.first
        if not 0 < place < self.count:
            raise IndexError(place)
        first, index = self.first, self.start + place * self.step
        text, work = str(index), first.work
        if self.words:
            argv = tuple(text.join(pieces) for pieces in self.words)
            work = msgspec.structs.replace(work, argv=argv)
        return msgspec.structs.replace(
            first,
            id=TaskId(f"{first.group}.{place}"),
            index=place,
            params={**first.params, INDEX: index},
            work=work,
            label=text,
        )


Tasks = tuple[Task, ...] | TaskArray


def each_changed(tasks: Tasks, change: Callable[[Task], Task]) -> Tasks:
    """Return the same tasks, each changed alike; the index decides nothing of it."""
    if isinstance(tasks, TaskArray):
        return msgspec.structs.replace(tasks, first=change(tasks.first))
    return tuple(map(change, tasks))


class Verify(msgspec.Struct, frozen=True, omit_defaults=True):
    """How many results of different owners must agree before one is accepted.

    `compare` is `outputs`, `stdout`, or the path of one output; with a `command`, that
    says which outputs are the same. After `most` results without agreement the task
    has failed. Unless `always`, most results of owners who earned trust are believed.
    """

    copies: int = 2
    compare: str = "outputs"
    command: tuple[str, ...] = ()
    most: int = 8
    owners: Literal["different", "any"] = "different"
    always: bool = False


class Objective(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which reported metric says how good a task is, and which is better.

    With a `first_rung` poor tasks are stopped: at that step, and each `eta` times as
    many steps later, the best of every `eta` go on.
    """

    metric: Name
    goal: Literal["min", "max"] = "min"
    first_rung: Count = 0  # 0: none is stopped
    eta: Count = 3


class Group(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tasks that are derived together and become runnable together.

    `gang_min` is 0 for independent tasks; a gang runs with at least that many of
    its tasks, all started together, or not at all. Its tasks start with the outputs of
    the groups it needs, unless it `takes_outputs` of none, and with `inputs`: outputs
    that an earlier job has left.
    """

    id: GroupId
    tasks: Tasks
    gang_min: int = 0
    needs: tuple[GroupId, ...] = ()
    verify: Verify | None = None  # one result of any worker is enough
    takes_outputs: bool = True
    inputs: tuple[Input, ...] = ()
    objective: Objective | None = None

    @property
    def models(self) -> tuple[Task, ...]:
        """Its tasks, or one that stands for all if they are of a large array."""
        tasks = self.tasks
        return (tasks.first,) if isinstance(tasks, TaskArray) else tasks


class OnEnd(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is called once a job has ended, on the node that it was submitted to."""

    webhook: PathText = ""
    command: Arguments = ()


class Schedule(msgspec.Struct, frozen=True, omit_defaults=True):
    """When a job runs again and again: a cron expression, in a time zone.

    `overlap` says what happens to a run that is due while the last one goes on,
    `missed` what happens to one that was due while nobody could start it.
    """

    cron: Name
    timezone: Name = DEFAULT_ZONE
    overlap: Literal["skip", "allow"] = "skip"
    missed: Literal["run", "skip"] = "run"


class Occurrence(msgspec.Struct, frozen=True, array_like=True):
    """Which run of which schedule a job is."""

    schedule: JobId
    number: Count  # its first run is 1
    due_s: float  # since 1970


class Job(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything a scheduler must know to run a job, with nothing left to derive."""

    id: JobId
    owner: OwnerId
    name: str = ""
    groups: tuple[Group, ...]
    priority: int = 0
    preempt: bool = False  # may displace work of a lower priority
    preemptible: bool = True  # may be displaced by work of a higher one
    at_most_once: bool = False
    speculate: bool = False  # a straggler may be run a second time elsewhere
    retry: Retry = Retry()
    policy: str = ""  # empty: the scheduler's own
    max_rtt_s: Seconds | None = None  # farthest a worker may be from the scheduler
    same_leaf: SameLeaf = "no"  # whether a gang sits under one switch
    on_end: OnEnd | None = None
    nodes: tuple[NodeId, ...] = ()  # the only workers that may run it, unless empty
    schedule: Schedule | None = None  # it never runs itself, but starts jobs like it
    occurrence: Occurrence | None = None  # a schedule started it
    # Other nodes of its owner that go on with it without this one; None: as this says.
    keepers: int | None = None

    @property
    def may_run_again(self) -> bool:
        """Whether a task that was lost with its worker is run a second time."""
        return not self.at_most_once and "worker-lost" in self.retry.on

    def tasks(self) -> Iterator[Task]:
        """Go through the tasks of all groups, in order."""
        for group in self.groups:
            yield from group.tasks

    def models(self) -> Iterator[Task]:
        """Go through the models of all groups: enough to know what the job is about."""
        for group in self.groups:
            yield from group.models
