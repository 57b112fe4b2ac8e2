"""Recipes of more than one program: the parts of a job, each with its own needs.

`diloco` has workers that train, as a gang that goes on while its least is left, and one
task that aggregates, which needs no GPU. `ddp` and `pipeline` are gangs that use the
network, since torch's own transports do. `sweep` has one task for each of its trials,
and one that judges them. The parts of a job without steps are called
`train` and `aggregate`; in a step, its name comes before that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from shoal.errors import SpecError
from shoal.model.job import Retry
from shoal.model.kinds import PROGRAM
from shoal.model.spec.canonical import nodes_of
from shoal.model.spec.points import points
from shoal.model.spec.spec import JobSpec, ResourcesSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shoal.model.job import Scalar

PROCESS_BYTES: Final = 330 << 20
"""Python with torch loaded, before there is any model."""

BYTES: Final = {"float32": 4, "bfloat16": 2, "float16": 2}
MOMENTS: Final = {"sgd": 0, "momentum": 1, "adamw": 2}
"""Numbers in single precision that an optimizer keeps for each parameter."""

COPIES: Final = {"sgd": 1, "momentum": 1, "adamw": 2}
"""Of all weights for a moment: when they are written, and in the optimizer's step."""

DILOCO_COPIES: Final = 5
"""Shared weights, what compression lost, a snapshot, and two on their way."""

PER_TOKEN: Final = 24
"""Numbers that a block keeps for each of its width, and each token, to go back."""

MEASURED_ROWS: Final = 64
PER_TOKEN_MEASURED: Final = 18
"""The same when nothing goes back, in the widest place of a block."""

VOCABULARY: Final = 256
_GPT: Final = {"batch": 16, "context": 64, "width": 64, "layers": 2}
_PIPELINE: Final = {**_GPT, "layers": 4}


def gpt_parameters(*, context: int, width: int, layers: int) -> int:
    """Return how many parameters the byte-level GPT has."""
    block = 12 * width * width + 9 * width
    return (VOCABULARY + context) * width + layers * block + (2 + VOCABULARY) * width


def training_bytes(
    parameters: int,
    *,
    activations: int,
    optimizer: str = "adamw",
    precision: str = "float32",
    copies: int | None = None,
) -> int:
    """Return the memory of a task that trains this many parameters.

    `activations` are the numbers that the layers keep for one batch.
    """
    size = BYTES[precision]
    copied = COPIES[optimizer] if copies is None else copies
    each = 2 * size + 4 * MOMENTS[optimizer] + 4 * copied
    return PROCESS_BYTES + parameters * each + activations * size


def ram_of(recipe: str, params: Mapping[str, Scalar], most: int) -> int | None:
    """Estimate the memory of one task of a recipe; None if unknown.

    Weights, gradients and the optimizer's moments are counted by the parameter;
    activations by the token. The estimate was checked against real runs of the programs
    that come with shoal.
    """
    program = params.get("program", "pipeline_gpt" if recipe == "pipeline" else "gpt")
    agent = PROCESS_BYTES if recipe == "ddp" else 0  # It loads torch as well.
    if program == "digits":
        return agent + training_bytes(20_000, activations=100_000)
    if program not in ("gpt", "pipeline_gpt"):
        return None
    defaults = _PIPELINE if program == "pipeline_gpt" else _GPT
    sizes = {name: _whole(params, name, default) for name, default in defaults.items()}
    context, width, layers = sizes["context"], sizes["width"], sizes["layers"]
    parameters = gpt_parameters(context=context, width=width, layers=layers)
    tokens = sizes["batch"] * context
    trained = tokens * (layers * PER_TOKEN * width + 3 * VOCABULARY)
    measured = MEASURED_ROWS * context * (PER_TOKEN_MEASURED * width + 2 * VOCABULARY)
    if recipe == "pipeline":
        # All peers make all layers, but each trains only its share of them.
        share = -(-parameters // most)
        kept = parameters * 4
        return kept + training_bytes(share, activations=trained // most)
    named = str(params.get("optimizer", "adamw"))
    optimizer = named if named in MOMENTS else "adamw"
    copies = COPIES[optimizer] + (DILOCO_COPIES if recipe == "diloco" else 0)
    return agent + training_bytes(
        parameters,
        activations=max(trained, measured),
        optimizer=optimizer,
        copies=copies,
    )


def _whole(params: Mapping[str, Scalar], name: str, default: int) -> int:
    """Return a param as a number; what is none is the program's to complain about."""
    value = params.get(name, default)
    try:
        return max(1, int(value))
    except ValueError:
        return default


DILOCO: Final = "diloco"
SWEEP: Final = "sweep"
PIPELINE: Final = "pipeline"
JUDGE: Final = "judge"
TRIALS: Final = "trials"
AGGREGATE: Final = "aggregate"
TRAIN: Final = "train"

GANGS: Final = frozenset({"ddp", "pipeline"})
"""Recipes whose tasks talk to each other directly, at every step, over the network."""

AGGREGATE_CPU: Final = "0.5"
"""What averaging takes: a moment of one CPU in each round."""

OUTPUTS: Final = "out/"
"""Where recipes leave weights, unless the job says otherwise."""

TRY_AGAIN: Final = 33
"""The exit code of a program that lost its peers and can go on from a checkpoint."""

RESTARTING: Final = frozenset({"diloco", "ddp", "pipeline"})
"""Recipes that go on from where they were, so that being killed is no failure."""

TRAINING: Final = frozenset({"ddp", "diloco", "pipeline", "sweep"})
"""Recipes whose memory is assessed when a job does not say it."""

HEADROOM_PERCENT: Final = 130
"""What a task may use, of what it was assessed to need: beyond it, it is killed."""

_KILLED: Final = (134, 135, 137, 139, 143)
"""Exit codes of programs that were ended by a signal: ABRT, BUS, KILL, SEGV, TERM."""


AVERAGING: Final = ("safetensors",)
"""Modules of Python that an aggregator imports."""

LEARNING: Final = ("torch", "safetensors")
"""Modules that a program which trains or measures a model imports."""

DEFAULT_PROGRAMS: Final = {
    "ddp": "gpt",
    "diloco": "gpt",
    "eval": "gpt",
    "pipeline": "pipeline_gpt",
    "sweep": "digits",
    "train": "digits",
}
"""What recipes that run a program run, unless the job names another."""

MODULES: Final = {"digits": (*LEARNING, "sklearn")}
"""Modules of programs that need more than others."""

OWN_PYTHON: Final = ("PATH", "PYTHONHOME", "PYTHONPATH")
"""Variables by which a job brings modules, or a Python, of its own."""


class RecipePart(NamedTuple):
    """One part of a job: what it is called, and modules that workers must have."""

    name: str
    spec: JobSpec
    modules: tuple[str, ...] = ()


def parts_of(spec: JobSpec, name: str, path: str) -> list[RecipePart]:
    """Return the parts of a job or step."""
    learning = _modules_of(spec)
    least, most = nodes_of(spec)
    spec = _assessed(spec, most)
    if spec.recipe == PIPELINE and least != most:
        raise SpecError(
            "a pipeline has a fixed number of nodes",
            path=f"{path}.nodes",
            because="each computes some layers, and none can be left out",
            hint=f"write `nodes: {most}`",
        )
    params = {"workers": most, "quorum": least, **spec.params}
    replace = msgspec.structs.replace
    if spec.recipe in GANGS:
        outputs = spec.outputs or (OUTPUTS,)
        gang = replace(spec, params=params, network=True, outputs=outputs)
        return [RecipePart(name, gang, learning)]
    step = "" if name == "main" else f"{name}-"
    little = ResourcesSpec(cpu=AGGREGATE_CPU)
    if spec.recipe == SWEEP:
        judged = {"trials": len(points(spec)), **spec.params}
        judge = replace(
            spec,
            params=judged,
            nodes=1,
            array=None,
            sweep=None,
            resources=little,
            any_of=(),
            outputs=spec.outputs or (OUTPUTS,),
        )
        trials = replace(spec, params=judged)
        return [RecipePart(JUDGE, judge), RecipePart(TRIALS, trials, learning)]
    if spec.recipe != DILOCO:
        return [RecipePart(name, spec, learning)]
    if most == 1 and (spec.array is not None or spec.sweep is not None):
        raise SpecError(
            "a sweep of diloco needs at least two nodes for each point",
            path=f"{path}.nodes",
            because="workers find their aggregator by the number of their gang",
            hint="write `nodes: 2`",
        )
    aggregate = replace(
        spec,
        params=params,
        nodes=1,
        resources=little,
        any_of=(),
        outputs=spec.outputs or (OUTPUTS,),
    )
    train = replace(spec, params=params, outputs=())
    return [
        RecipePart(f"{step}{AGGREGATE}", aggregate, AVERAGING if learning else ()),
        RecipePart(f"{step}{TRAIN}", train, learning),
    ]


def _modules_of(spec: JobSpec) -> tuple[str, ...]:
    """Return the modules that a job's program needs and does not bring along."""
    if spec.recipe not in DEFAULT_PROGRAMS:
        return ()
    if spec.image or spec.setup or any(name in spec.env for name in OWN_PYTHON):
        return ()
    program = str(spec.params.get(PROGRAM, DEFAULT_PROGRAMS[spec.recipe]))
    return MODULES.get(program, LEARNING)


def _assessed(spec: JobSpec, most: int) -> JobSpec:
    """Return a spec that says how much memory its tasks need, if that is known."""
    if spec.recipe not in TRAINING or spec.any_of or spec.resources.ram is not None:
        return spec
    need = ram_of(spec.recipe, spec.params, most)
    if need is None:
        return spec
    ram = f"{-(-need * HEADROOM_PERCENT // 100 >> 20)}MB"
    resources = msgspec.structs.replace(spec.resources, ram=ram)
    return msgspec.structs.replace(spec, resources=resources)


def retry_of(spec: JobSpec) -> Retry:
    """Return when tasks are tried again: more often, if that is what recipes need."""
    recipes = {spec.recipe, *(step.recipe for step in spec.steps.values())}
    given = spec.retry
    if given.max is not None and given.on is not None:  # as in any canonical spec
        return Retry(given.max, tuple(map(str, given.on)))
    if not recipes & RESTARTING:
        return Retry()
    codes = (TRY_AGAIN, *_KILLED)
    return Retry(20, ("worker-lost", *(f"exit:{code}" for code in codes)))
