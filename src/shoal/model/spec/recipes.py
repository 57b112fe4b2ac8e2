"""Recipes of more than one program: the parts of a job, each with its own needs.

`diloco` has workers that train, as a gang that goes on while its least is left, and one
task that aggregates, which needs no GPU. `ddp` and `pipeline` are gangs that use the
network, since torch's own transports do. `sweep` has one task for each of its trials,
and one that judges them. The parts of a job without steps are called
`train` and `aggregate`; in a step, its name comes before that.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from shoal.errors import SpecError
from shoal.model.job import Retry
from shoal.model.kinds import PROGRAM
from shoal.model.spec.canonical import nodes_of
from shoal.model.spec.footprint import ram_of
from shoal.model.spec.points import points
from shoal.model.spec.spec import JobSpec, ResourcesSpec

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

JUDGING: Final = ("shoal",)
"""Modules that a program which compares trials imports."""

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
"""The program of each recipe that runs one, unless the job names another."""

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
        judged_by = RecipePart(JUDGE, judge, JUDGING if learning else ())
        return [judged_by, RecipePart(TRIALS, trials, learning)]
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
    if spec.recipe is None or spec.recipe not in DEFAULT_PROGRAMS:
        return ()
    brings = spec.image or spec.setup or spec.python
    if brings or any(name in spec.env for name in OWN_PYTHON):
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
