"""Recipes of more than one program: the parts of a job, each with its own needs.

`diloco` has workers that train, as a gang that goes on while its least is left, and one
task that aggregates, which needs no GPU; if workers span several machines, each is a
gang itself. `ddp` and `pipeline` are gangs that use the network, since torch's own
transports do. `sweep` has one task for each of its trials, and one that judges them.
The parts of a job without steps are called `train` and `aggregate`; in a step, its name
comes before that.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from shoal.errors import SpecError
from shoal.model.footprint.image_models import image_tensor_bytes
from shoal.model.footprint.text_models import GPU_CONTEXT_BYTES, gpu_memory_of, ram_of
from shoal.model.gpu import format_gpu, parse_gpu
from shoal.model.job import Retry
from shoal.model.kinds import PROGRAM
from shoal.model.spec.canonical import nodes_of
from shoal.model.spec.points import points
from shoal.model.spec.spec import JobSpec, ResourcesSpec
from shoal.task_words import IMAGES, share_of, translated

DILOCO: Final = "diloco"
SWEEP: Final = "sweep"
PIPELINE: Final = "pipeline"
JUDGE: Final = "judge"
TRIALS: Final = "trials"
AGGREGATE: Final = "aggregate"
TRAIN: Final = "train"

GANGS: Final = frozenset({"ddp", "pipeline"})
"""Recipes whose tasks talk to each other directly, at every step, over the network."""

LITTLE: Final = ResourcesSpec(cpu="0.5")
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

MODULES: Final = {
    "digits": (*LEARNING, "sklearn"),
    "images": (*LEARNING, "torchvision"),
}
"""Modules of programs that need more than others."""

OWN_PYTHON: Final = ("PATH", "PYTHONHOME", "PYTHONPATH")
"""Variables by which a job brings modules, or a Python, of its own."""


class Assessed(NamedTuple):
    """Which needs of a spec are estimates of its recipe."""

    memory: bool = False
    gpu_memory: bool = False


class RecipePart(NamedTuple):
    """One part of a job: what it is called, and modules that workers must have."""

    name: str
    spec: JobSpec
    modules: tuple[str, ...] = ()
    assessed: Assessed = Assessed()


def parts_of(spec: JobSpec, name: str, path: str) -> list[RecipePart]:
    """Return the parts of a job or step."""
    learning = _modules_of(spec)
    spec = _with_datasets(spec)
    least, most = nodes_of(spec)
    spec, assessed = _assessed(spec, most)
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
        return [RecipePart(name, gang, learning, assessed)]
    if spec.recipe == SWEEP:
        judged = {"trials": len(points(spec)), **spec.params}
        judge = replace(
            spec,
            params=judged,
            nodes=1,
            array=None,
            sweep=None,
            resources=LITTLE,
            any_of=(),
            outputs=spec.outputs or (OUTPUTS,),
        )
        trials = replace(spec, params=judged)
        judged_by = RecipePart(JUDGE, judge, JUDGING if learning else ())
        return [judged_by, RecipePart(TRIALS, trials, learning, assessed)]
    if spec.recipe != DILOCO:
        return [RecipePart(name, spec, learning)]
    step = "" if name == "main" else f"{name}-"
    aggregate, train = _trained_apart(spec, step, path, learning)
    return [aggregate, train._replace(assessed=assessed)]


def _trained_apart(
    spec: JobSpec, step: str, path: str, learning: tuple[str, ...]
) -> list[RecipePart]:
    """Return the parts of `diloco`."""
    least, most = nodes_of(spec)
    params = {"workers": most, "quorum": least, **spec.params}
    replace = msgspec.structs.replace
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
        resources=LITTLE,
        any_of=(),
        outputs=spec.outputs or (OUTPUTS,),
    )
    train = replace(spec, params=params, outputs=())
    if (ranks := _spanned(spec, path)) > 1:
        train = replace(train, nodes=ranks, array=most, network=True)
    return [
        RecipePart(f"{step}{AGGREGATE}", aggregate, AVERAGING if learning else ()),
        RecipePart(f"{step}{TRAIN}", train, learning),
    ]


def _spanned(spec: JobSpec, path: str) -> int:
    """Return how many machines a worker of diloco spans.

    Then each worker is a gang: found and placed as one, near each other, and started
    again as one. All of them together are an array.
    """
    if spec.params.get("inner.over") != "machines":
        return 1
    least, most = nodes_of(spec)
    if least != most:
        raise SpecError(
            "workers over several machines are of a fixed number",
            path=f"{path}.nodes",
            because="each is a gang of its own, which is there or not",
            hint=f"write `nodes: {most}`, the number of workers",
        )
    if spec.array is not None or spec.sweep is not None:
        raise SpecError(
            "there is no sweep over workers that span several machines",
            path=f"{path}.params.inner.over",
            because="gangs of a job have one number, and here it is that of a worker",
            hint="submit a job for each point",
        )
    kinds = ("inner.ddp", "inner.fsdp", "inner.pipeline")
    return max(int(spec.params.get(kind, 1)) for kind in kinds)


def _modules_of(spec: JobSpec) -> tuple[str, ...]:
    """Return the modules that a job's program needs and does not bring along."""
    if spec.recipe is None or spec.recipe not in DEFAULT_PROGRAMS:
        return ()
    brings = spec.image or spec.setup or spec.python
    if brings or any(name in spec.env for name in OWN_PYTHON):
        return ()
    program = spec.params.get(PROGRAM, DEFAULT_PROGRAMS[spec.recipe])
    if spec.recipe == TRAIN:
        program = translated({**points(spec)[0], **spec.params})[PROGRAM]
    return MODULES.get(str(program), LEARNING)


def _with_datasets(spec: JobSpec) -> JobSpec:
    """Return a spec that mounts the folders which the recipe `train` reads."""
    if spec.recipe != TRAIN:
        return spec
    shares = [share_of({**point, **spec.params}) for point in points(spec)]
    mounts = dict.fromkeys((*spec.mounts, *filter(None, shares)))
    return msgspec.structs.replace(spec, mounts=tuple(sorted(mounts)))


def _assessed(spec: JobSpec, most: int) -> tuple[JobSpec, Assessed]:
    """Return a spec that says how much memory its tasks need, if that is known."""
    if spec.recipe not in (*TRAINING, TRAIN) or spec.any_of:
        return spec, Assessed()
    resources, replace = spec.resources, msgspec.structs.replace
    ram = gpu_memory = None
    if resources.ram is None and spec.recipe != TRAIN:
        ram = ram_of(spec.recipe, spec.params, most)
    if ram is not None:
        resources = replace(resources, ram=_with_headroom(ram))
    gpu = parse_gpu(resources.gpu or 0)
    if gpu is not None and not gpu.memory_min_bytes and gpu.memory_max_bytes is None:
        gpu_memory = _gpu_memory(spec, gpu.count, most)
    if gpu is not None and gpu_memory is not None:
        gpu = replace(gpu, memory_min_bytes=-(-gpu_memory >> 20) << 20)
        resources = replace(resources, gpu=format_gpu(gpu))
    assessed = Assessed(ram is not None, gpu_memory is not None)
    return replace(spec, resources=resources), assessed


def _gpu_memory(spec: JobSpec, gpus: int, most: int) -> int | None:
    """Return the memory of each GPU of a task; None if unknown."""
    assert spec.recipe is not None
    if spec.recipe == TRAIN:
        params = translated({**points(spec)[0], **spec.params})
        is_images = params[PROGRAM] == IMAGES
        tensors = image_tensor_bytes(params, gpus) if is_images else None
        return None if tensors is None else GPU_CONTEXT_BYTES + tensors
    return gpu_memory_of(spec.recipe, spec.params, most)


def _with_headroom(need: int) -> str:
    return f"{-(-need * HEADROOM_PERCENT // 100 >> 20)}MB"


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
