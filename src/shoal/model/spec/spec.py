"""The job spec as people write it: YAML, JSON or flags.

These structs are the shape of the document and the source of its JSON Schema. A field
often takes several forms (`nodes: 2`, `nodes: 2..4`); `canonical.py` checks a spec and
brings every field to one of them, so that equal jobs are equal values, and `derive.py`
turns the result into tasks.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from shoal.model.job import (
    DEFAULT_ZONE,
    PRIORITY_MAX,
    PRIORITY_MIN,
    SameLeaf,
    Scalar,
    Stdin,
)
from shoal.model.spec.limits import (
    ALTERNATIVES_MAX,
    ANSWERS_MAX,
    COPIES_MAX,
    COPIES_MIN,
    NODES_MAX,
    RETRIES_MAX,
    STEP_NAME_LENGTH_MAX,
    STEPS_COUNTED_MAX,
    STEPS_MAX,
)
from shoal.model.text.bounds import (
    ARGUMENT,
    ENV_MAX,
    GRAMMAR,
    LABELS_MAX,
    LENT_MAX,
    NAME,
    NAME_LENGTH_MAX,
    OUTPUTS_MAX,
    PACKAGES_MAX,
    PARAMS_MAX,
    SECRETS_MAX,
    Name,
    PathText,
    Value,
)
from shoal.model.units import Amount

Word = Annotated[
    str, Meta(min_length=1, max_length=NAME_LENGTH_MAX, extra={GRAMMAR: NAME})
]
StepName = Annotated[
    str, Meta(min_length=1, max_length=STEP_NAME_LENGTH_MAX, extra={GRAMMAR: NAME})
]
CommandText = Annotated[str, Meta(extra={GRAMMAR: ARGUMENT})]
Command = Annotated[
    CommandText | tuple[Scalar, ...],
    Meta(
        description="The program and its arguments; never a shell. `{name}` stands for "
        "a param, `{index}` for the place in an array or sweep, `{{name}}` for itself.",
        examples=["python train.py --lr {lr}", ["python", "train.py"]],
    ),
]
Recipe = Annotated[
    Word,
    Meta(
        description="A training program that comes with shoal; it gets all params.",
        examples=["diloco", "train"],
    ),
]
Params = Annotated[
    dict[Word, Scalar],
    Meta(
        max_length=PARAMS_MAX,
        description="Values for the placeholders of the command, or for the recipe. "
        "`a: {b: 1}` is another way to write `a.b: 1`.",
        examples=[{"lr": 0.1, "epochs": 90}],
    ),
]
Nodes = Annotated[
    Annotated[int, Meta(ge=1, le=NODES_MAX)] | str,
    Meta(
        description="How many nodes run the command together: a number, or the least "
        "and the most of an elastic job.",
        examples=[1, 4, "2..4"],
    ),
]
Array = Annotated[
    Annotated[int, Meta(ge=1)] | str,
    Meta(
        description="Independent tasks, told apart by `{index}`: how many, or which.",
        examples=[100, "0-99:5", "1,3,10-12"],
    ),
]
Environment = Annotated[
    dict[Word, Scalar],
    Meta(
        max_length=ENV_MAX,
        description="Environment variables of the program.",
        examples=[{"LR": 0.1, "WANDB_MODE": "offline"}],
    ),
]
Secrets = Annotated[
    tuple[Word, ...],
    Meta(
        max_length=SECRETS_MAX,
        description="Stored secrets, passed as environment variables.",
        examples=[["HF_TOKEN"]],
    ),
]
Workdir = Annotated[
    PathText,
    Meta(description="Directory to send along with the job.", examples=["."]),
]
Setup = Annotated[
    CommandText | tuple[Scalar, ...],
    Meta(
        description="Runs once on each node before the command.", examples=["uv sync"]
    ),
]
Image = Annotated[
    PathText,
    Meta(description="The container image to run in.", examples=["pytorch/pytorch"]),
]
Outputs = Annotated[
    tuple[PathText, ...],
    Meta(
        max_length=OUTPUTS_MAX,
        description="Paths below the work directory to keep as outputs.",
        examples=[["out/"]],
    ),
]
Duration = Annotated[
    str,
    Meta(description="Numbers with units.", examples=["90s", "1h30m", "50ms"]),
]
Driver = Annotated[
    Word,
    Meta(
        description="Driver that runs the command on the worker.",
        examples=["process", "container"],
    ),
]


class Strict(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """Base of all parts of a spec: a name that is not known is a mistake."""


class ResourcesSpec(Strict, frozen=True):
    """Resources of one task on one node. By default 1 CPU, and nothing else."""

    gpu: Annotated[
        Amount | None,
        Meta(
            description="Vendor, models, memory and count, in any order; a bare size "
            "is a minimum, a bare number a count, 0.5 a share of one GPU.",
            examples=["24GB..:2", "A100,H100:80GB", "amd:2..4", 1, 0.5],
        ),
    ] = None
    cpu: Annotated[
        Amount | None, Meta(description="CPUs.", examples=[4, 0.5, "4.."])
    ] = None
    ram: Annotated[
        Amount | None,
        Meta(description="Main memory; a bare number is in MB.", examples=["16GB"]),
    ] = None
    disk: Annotated[
        Amount | None,
        Meta(description="Scratch space; a bare number is in MB.", examples=["20GB"]),
    ] = None


class PythonSpec(Strict, frozen=True):
    """The Python environment of a task: made by its worker, or offered by it."""

    requirements: Annotated[
        PathText,
        Meta(
            description="A requirements file, as seen from where the job is submitted.",
            examples=["requirements.txt"],
        ),
    ] = ""
    uv: Annotated[
        PathText,
        Meta(
            description="A project of uv; a uv.lock beside it is used as it is.",
            examples=["pyproject.toml"],
        ),
    ] = ""
    packages: Annotated[
        tuple[Value, ...],
        Meta(
            max_length=PACKAGES_MAX,
            description="Packages, as in a requirements file.",
            examples=[["numpy", "torch>=2.4"]],
        ),
    ] = ()
    version: Annotated[
        Name, Meta(description="Version of Python.", examples=["3.12"])
    ] = ""
    name: Annotated[
        Name,
        Meta(
            description="An environment that workers offer: shoal up --python NAME=DIR."
        ),
    ] = ""
    files: Annotated[
        PathText, Meta(description="Where the files were put; made when they are sent.")
    ] = ""
    digest: Annotated[
        Name, Meta(description="What is in the files; made when they are sent.")
    ] = ""


Python = Annotated[
    PathText | PythonSpec | None,
    Meta(
        description="The Python environment. A word is a file, a version or the name "
        "of an environment that workers offer.",
        examples=["requirements.txt", "pyproject.toml", {"packages": ["numpy"]}],
    ),
]
Mounts = Annotated[
    tuple[Word, ...],
    Meta(
        max_length=LENT_MAX,
        description="Folders that workers share by name: shoal up --share NAME=DIR.",
        examples=[["imagenet"]],
    ),
]
Caches = Annotated[
    tuple[Word, ...],
    Meta(
        max_length=LENT_MAX,
        description="Caches that last on a worker, one of each name for each owner: "
        "huggingface, torch, pip, uv.",
        examples=[["huggingface"]],
    ),
]


class RetrySpec(Strict, frozen=True):
    """When and how often a failed task is retried.

    Left out, tasks whose worker was lost are retried. The loss of a worker does not
    count as a failure; it has a limit of its own.
    """

    max: (
        Annotated[
            int,
            Meta(
                ge=0,
                le=RETRIES_MAX,
                description="How many failures of a task are retried; 3 with `on`.",
            ),
        ]
        | None
    ) = None
    on: Annotated[
        tuple[Word | int, ...] | None,
        Meta(
            description="Reasons: worker-lost, failed (any exit but 0, or a time "
            "limit), exit:N or N. If only `max` is given: worker-lost and failed.",
            examples=[["worker-lost", "exit:33"]],
        ),
    ] = None


class ObjectiveSpec(Strict, frozen=True):
    """What the tasks of a sweep are compared by."""

    metric: Annotated[
        Word,
        Meta(
            description="A metric that the program reports by `shoal.log`.",
            examples=["val_loss", "accuracy"],
        ),
    ]
    goal: Annotated[
        Literal["min", "max"],
        Meta(description="Whether a smaller or a larger value is better."),
    ] = "min"
    first_rung: Annotated[
        Annotated[int, Meta(ge=1, le=STEPS_COUNTED_MAX)] | None,
        Meta(
            description="Stop poor tasks early: at this step, and each `eta` times as "
            "many steps later, only the best of every `eta` tasks go on. By default "
            "none is stopped.",
        ),
    ] = None
    eta: Annotated[
        int,
        Meta(ge=2, le=100, description="Of how many tasks one goes on at each rung."),
    ] = 3


Objective = Annotated[
    ObjectiveSpec | None,
    Meta(description="The metric by which the best task of a sweep is known."),
]


class VerifySpec(Strict, frozen=True):
    """How results from untrusted machines are checked."""

    copies: Annotated[
        int,
        Meta(
            ge=COPIES_MIN,
            le=COPIES_MAX,
            description="How many results must agree before one is accepted.",
        ),
    ] = 2
    compare: Annotated[
        str | tuple[Scalar, ...],
        Meta(
            description="What must be the same: outputs, stdout, the path of one "
            "output, or a command that is given two folders of outputs, a and b, and "
            "exits with 0 if they are the same.",
            examples=["outputs", "stdout", "out/loss.txt", ["python", "close.py"]],
        ),
    ] = "outputs"
    most: Annotated[
        Annotated[int, Meta(ge=COPIES_MIN, le=ANSWERS_MAX)] | None,
        Meta(
            description="How many results may come without agreement before the task "
            "fails; by default six more than `copies`.",
        ),
    ] = None
    owners: Annotated[
        Literal["different", "any"],
        Meta(
            description="Whether only results of different owners count, or also "
            "those of several machines of one owner."
        ),
    ] = "different"
    always: Annotated[
        bool,
        Meta(
            description="Compare every result, also of owners whose results always "
            "agreed so far; without it, about one in five of theirs."
        ),
    ] = False


class PlacementSpec(Strict, frozen=True):
    """Which nodes may run the job, and which are preferred."""

    policy: Annotated[str, Meta(description="Name of a placement policy.")] = ""
    labels: Annotated[
        dict[Word, Scalar],
        Meta(max_length=LABELS_MAX, description="Labels that a node must have."),
    ] = {}
    max_rtt: Annotated[
        Duration | None,
        Meta(description="Maximum round-trip time to a node."),
    ] = None
    same_leaf: Annotated[
        SameLeaf | bool,
        Meta(description="Whether a gang should sit under one switch."),
    ] = "no"
    distinct_nodes: Annotated[
        bool,
        Meta(
            description="Whether each task of a gang needs a node of its own. Without "
            "it, several tasks of a gang may run on one node."
        ),
    ] = False
    node: Annotated[
        Word | tuple[Word, ...],
        Meta(
            description="The only node, or the only nodes, that may run the job: by "
            "name, by a unique beginning of it, or by id.",
            examples=["calm-heron", ["calm-heron", "brave-otter"]],
        ),
    ] = ()


class SpanSpec(Strict, frozen=True, rename={"start": "from", "stop": "to"}):
    """Evenly spaced values of a sweep, both ends included."""

    start: Annotated[int | float, Meta(description="The first value.")]
    stop: Annotated[int | float, Meta(description="The last value.")]
    step: Annotated[int | float, Meta(description="Distance of two values.")] = 1


Values = Annotated[tuple[Scalar, ...], Meta(min_length=1)] | SpanSpec
Sweep = Annotated[
    dict[Word, Values] | tuple[dict[Word, Scalar], ...],
    Meta(
        description="One task for every combination of these values, or for every "
        "mapping of a list.",
        examples=[{"lr": [0.1, 0.2], "seed": {"from": 1, "to": 3}}],
    ),
]
AnyOf = Annotated[
    tuple[ResourcesSpec, ...],
    Meta(
        max_length=ALTERNATIVES_MAX,
        description="Alternatives to `resources`, the favourite first; what one of "
        "them leaves out is as in `resources`.",
    ),
]


class StepSpec(Strict, frozen=True):
    """One step of a job. It inherits from the job what it leaves out.

    Params and variables are taken from both, name by name. A step that has its own
    `resources` or `any_of` takes neither from the job.
    """

    needs: Annotated[
        tuple[Word, ...],
        Meta(
            description="Steps that must have succeeded before this one starts. Their "
            "outputs are in its work directory; of two files of one name that of the "
            "later step in this list stays."
        ),
    ] = ()
    inputs: Annotated[
        bool,
        Meta(description="Whether it gets the outputs of the steps that it needs."),
    ] = True
    command: Command | None = None
    recipe: Recipe | None = None
    params: Params = {}
    resources: ResourcesSpec | None = None
    any_of: AnyOf | None = None
    nodes: Nodes = 1
    array: Array | None = None
    sweep: Sweep | None = None
    workdir: Workdir | None = None
    setup: Setup | None = None
    env: Environment = {}
    secrets: Secrets | None = None
    python: Python = None
    mounts: Mounts | None = None
    cache: Caches | None = None
    image: Image | None = None
    outputs: Outputs | None = None
    time_limit: Duration | None = None
    grace: Duration | None = None
    network: Annotated[
        bool | None, Meta(description="Whether the program may use the network.")
    ] = None
    driver: Driver | None = None
    verify: VerifySpec | None = None
    objective: Objective = None


class OnEndSpec(Strict, frozen=True):
    """What is called once the job has ended, however it ended.

    It is called by the node that the job was submitted to, at least once: a repeated
    call has the same `key`. A call that fails is tried again, for some hours.
    """

    webhook: Annotated[
        PathText,
        Meta(
            description="URL that gets a POST with a report as JSON.",
            examples=["https://example.org/hooks/shoal"],
        ),
    ] = ""
    command: Annotated[
        CommandText | tuple[Scalar, ...],
        Meta(
            description="Program and arguments, never a shell; runs on that node as "
            "its user, with the report on standard input. Only from this user's own "
            "command line.",
            examples=["notify-send shoal", ["python", "/home/ann/told.py"]],
        ),
    ] = ()


class ScheduleSpec(Strict, frozen=True):
    """When the job runs again and again.

    Each run is a job of its own. The schedule lasts until it is cancelled.
    """

    cron: Annotated[
        Name,
        Meta(
            description="Minute, hour, day of the month, month, day of the week; or "
            "@hourly, @daily, @weekly, @monthly, @yearly.",
            examples=["0 3 * * *", "*/15 8-18 * * MON-FRI", "@daily"],
        ),
    ]
    timezone: Annotated[
        Name,
        Meta(
            description="Time zone of the cron expression.", examples=["Europe/Berlin"]
        ),
    ] = DEFAULT_ZONE
    overlap: Annotated[
        Literal["skip", "allow"],
        Meta(
            description="What happens to a run that is due before the last one ended."
        ),
    ] = "skip"
    missed: Annotated[
        Literal["run", "skip"],
        Meta(
            description="What happens to runs that were due while the node was down: "
            "the latest of them runs late, or none."
        ),
    ] = "run"


Schedule = Annotated[
    Name | ScheduleSpec | None,
    Meta(
        description="Runs the job again and again, at times in the words of cron.",
        examples=["0 3 * * *", {"cron": "0 3 * * *", "timezone": "Europe/Berlin"}],
    ),
]


class JobSpec(Strict, frozen=True):
    """A job. It has a `command`, a `recipe` or `steps`; all else is optional."""

    name: Annotated[Name, Meta(description="Name of the job.")] = ""
    command: Command | None = None
    recipe: Recipe | None = None
    params: Params = {}
    params_text: Annotated[
        dict[Word, Value],
        Meta(
            description="Params as they were typed, where the command gets another "
            "text than the number would print: 1e-3 for 0.001."
        ),
    ] = {}
    resources: ResourcesSpec = ResourcesSpec()
    any_of: AnyOf = ()
    nodes: Nodes = 1
    array: Array | None = None
    sweep: Sweep | None = None
    steps: Annotated[
        dict[StepName, StepSpec],
        Meta(
            max_length=STEPS_MAX,
            description="Parts of the job that run one after another, or side by side "
            "where none needs the other.",
        ),
    ] = {}
    workdir: Workdir = ""
    setup: Setup = ()
    env: Environment = {}
    secrets: Secrets = ()
    python: Python = None
    mounts: Mounts = ()
    cache: Caches = ()
    image: Image = ""
    outputs: Outputs = ()
    priority: Annotated[
        int,
        Meta(ge=PRIORITY_MIN, le=PRIORITY_MAX, description="Higher runs first."),
    ] = 0
    preempt: Annotated[
        bool, Meta(description="Whether it may displace work of a lower priority.")
    ] = False
    preemptible: Annotated[
        bool, Meta(description="Whether work of a higher priority may displace it.")
    ] = True
    retry: RetrySpec = RetrySpec()
    time_limit: Annotated[
        Duration | None, Meta(description="Time limit of each task.")
    ] = None
    grace: Annotated[
        Duration, Meta(description="Time between the notice to stop and the kill.")
    ] = "10s"
    placement: PlacementSpec = PlacementSpec()
    at_most_once: Annotated[
        bool,
        Meta(description="Never start a task again that may have started before."),
    ] = False
    speculate: Annotated[
        bool, Meta(description="Run a copy of a straggler elsewhere.")
    ] = False
    keepers: Annotated[
        Literal[0, 2, 4] | None,
        Meta(
            description="How many other nodes of yours keep the job, and go on with it "
            "if the node that it was submitted to is gone. By default as many as that "
            "node says (shoal up --keepers), if they are there."
        ),
    ] = None
    network: Annotated[
        bool, Meta(description="Whether the program may use the network.")
    ] = False
    driver: Driver = "process"
    verify: Annotated[
        VerifySpec | None,
        Meta(description="How results are checked; by default they are trusted."),
    ] = None
    objective: Objective = None
    stdin: Annotated[
        Stdin,
        Meta(
            description="Standard input of the program: nothing, or what is sent to it "
            "while it runs. `shoal run` sets this, and sends its own."
        ),
    ] = "none"
    on_end: Annotated[
        OnEndSpec | None, Meta(description="What is called at the end of the job.")
    ] = None
    schedule: Schedule = None


def job_schema() -> dict[str, Any]:
    """Return the schema of a spec in YAML or JSON, with a description of each field.

    What it accepts has the right shape. The amounts in it, and what fields mean
    together, are only checked when a spec is read.
    """
    encoded = msgspec.json.encode(msgspec.json.schema(JobSpec))
    schema = msgspec.json.decode(encoded, type=dict[str, Any])
    for part in (JobSpec, StepSpec):
        params = schema["$defs"][part.__name__]["properties"]["params"]
        value = params["additionalProperties"]
        nested = {"type": "object", "additionalProperties": value}
        params["additionalProperties"] = {"anyOf": [*value["anyOf"], nested]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "shoal job",
        **schema,
    }
