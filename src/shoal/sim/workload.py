"""Draw random jobs, both ordinary and harmful ones."""

from __future__ import annotations

from random import Random
from typing import Final

import msgspec

from shoal.model.ids import GroupId, JobId, NodeId, OwnerId, TaskId
from shoal.model.job import Group, Job, Retry, Task, TaskArray
from shoal.model.resources import GIB, Capacity, Device, GpuNeed, Profile
from shoal.sim.node.blobs import PackedTree
from shoal.sim.node.driver import Behaviour, Plans

JOBS: Final = (3, 14)
MODELS: Final = (("RTX3060", 12), ("RTX3090", 24), ("A100", 80))
OWNERS: Final = (OwnerId("ann"), OwnerId("bob"), OwnerId("cem"))
SLOWEST_S: Final = 20.0
"""Longest run of a process, except stragglers."""

SHAPES: Final = (
    "single",
    "array",
    "gang",
    "elastic",
    "dag",
    "array",
    "gang",
    "swarm",
)
SWARM: Final = (20, 50)
"""Task counts of a swarm; its tasks are mostly short, as in practice."""


class Errand(msgspec.Struct, frozen=True, kw_only=True):
    """One client's job, which it may submit twice and may cancel."""

    job: Job
    scheduler: NodeId
    at_s: float
    repeat_after_s: float | None = None
    cancel_after_s: float | None = None


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """All clients' errands in one world, and each task's behaviour."""

    errands: tuple[Errand, ...]
    plans: Plans
    code: PackedTree | None = None  # that some jobs need; schedulers have it


def draw_capacity(rng: Random) -> Capacity:
    """Return the capacity of a random machine."""
    model, memory = rng.choice(MODELS)
    devices = tuple(
        Device(f"gpu{n}", "nvidia", model, memory * GIB)
        for n in range(rng.choice((0, 1, 1, 2, 4)))
    )
    return Capacity(
        cpu_milli=1_000 * rng.choice((2, 4, 8)),
        memory_bytes=GIB * rng.choice((8, 16, 64)),
        disk_bytes=100 * GIB,
        devices=devices,
        labels=(("site", rng.choice(("home", "lab"))),),
    )


def draw_workload(
    rng: Random,
    schedulers: list[NodeId],
    capacities: list[Capacity],
    span_s: float,
    poison: bool,
) -> Workload:
    """Draw jobs of which each could run alone on these workers."""
    plans: Plans = {}
    errands: list[Errand] = []
    for number in range(rng.randint(*JOBS)):
        job = _draw_job(rng, f"j{number}", capacities)
        errand = Errand(
            job=job,
            scheduler=rng.choice(schedulers),
            at_s=rng.uniform(0.5, span_s * 0.7),
            repeat_after_s=rng.uniform(0.01, 5.0) if rng.random() < 0.3 else None,
            cancel_after_s=rng.uniform(0.0, 15.0) if rng.random() < 0.15 else None,
        )
        errands.append(errand)
        for task in job.tasks():
            plans[task.id] = _draw_behaviour(rng, job, task)
    if poison:
        _poison_one(rng, errands, plans)
    return Workload(errands=tuple(errands), plans=plans)


def _draw_job(rng: Random, id_: str, capacities: list[Capacity]) -> Job:
    shape = rng.choice(SHAPES)
    once = rng.random() < 0.2
    return Job(
        id=JobId(id_),
        owner=rng.choice(OWNERS),
        groups=_draw_groups(rng, id_, shape, capacities),
        priority=rng.choice((-10, 0, 0, 0, 10, 50)),
        preempt=rng.random() < 0.4,
        preemptible=rng.random() < 0.8,
        at_most_once=once,
        speculate=not once and rng.random() < 0.3,
        retry=_draw_retry(rng),
    )


def _draw_retry(rng: Random) -> Retry:
    on = rng.choice(
        (
            ("worker-lost",),
            ("worker-lost", "exit:3"),
            ("worker-lost", "failed"),
            ("failed",),
        )
    )
    return Retry(max=rng.randint(0, 3), on=on)


def _draw_groups(
    rng: Random, id_: str, shape: str, capacities: list[Capacity]
) -> tuple[Group, ...]:
    match shape:
        case "single":
            return (_group(rng, id_, "main", 1, capacities),)
        case "array":
            return (_group(rng, id_, "main", rng.randint(2, 10), capacities),)
        case "swarm":
            return (_group(rng, id_, "main", rng.randint(*SWARM), capacities),)
        case "gang" | "elastic":
            return (_gang(rng, id_, capacities, elastic=shape == "elastic"),)
        case _:
            first = _group(rng, id_, "first", rng.randint(1, 3), capacities)
            second = _group(rng, id_, "second", rng.randint(1, 3), capacities)
            last = _group(rng, id_, "last", 1, capacities)
            return (
                first,
                msgspec.structs.replace(second, needs=(first.id,)),
                msgspec.structs.replace(last, needs=(first.id, second.id)),
            )


def _group(
    rng: Random, job: str, name: str, size: int, capacities: list[Capacity]
) -> Group:
    profiles = [_draw_profile(rng, capacities)]
    if rng.random() < 0.2:
        profiles.append(_draw_profile(rng, capacities))
    group = make_group(job, name, size, tuple(profiles), _draw_limit(rng))
    # Half of them as large arrays are, though they are small.
    return group if size % 2 else in_array(group)


def make_group(
    job: str,
    name: str,
    size: int,
    profiles: tuple[Profile, ...],
    limit_s: float | None = None,
) -> Group:
    """Return a group of identical independent tasks."""
    id_ = GroupId(f"{job}.{name}")
    return Group(
        id=id_,
        tasks=tuple(
            Task(
                id=TaskId(f"{id_}.{index}"),
                job=JobId(job),
                group=id_,
                index=index,
                size=size,
                profiles=profiles,
                time_limit_s=limit_s,
                grace_s=2.0,
            )
            for index in range(size)
        ),
    )


def in_array(group: Group) -> Group:
    """Return the same tasks, derived when they are needed."""
    tasks = TaskArray(first=group.tasks[0], count=len(group.tasks))
    return msgspec.structs.replace(group, tasks=tasks)


def _gang(rng: Random, job: str, capacities: list[Capacity], *, elastic: bool) -> Group:
    profile = Profile(cpu_milli=500, memory_bytes=GIB // 4)
    slots = sum(room_for(profile, capacity) for capacity in capacities)
    size = min(rng.randint(2, 5), slots)
    group = make_group(job, "gang", size, (profile,), _draw_limit(rng))
    least = rng.randint(1, size) if elastic else size
    return msgspec.structs.replace(group, gang_min=least)


def room_for(profile: Profile, capacity: Capacity) -> int:
    """Return how many tasks of a CPU profile fit on an idle worker."""
    return min(
        capacity.cpu_milli // max(1, profile.cpu_milli),
        capacity.memory_bytes // max(1, profile.memory_bytes),
    )


def _draw_limit(rng: Random) -> float | None:
    return rng.uniform(2.0, 30.0) if rng.random() < 0.15 else None


def _draw_profile(rng: Random, capacities: list[Capacity]) -> Profile:
    """Return a profile that at least one idle worker can serve."""
    capacity = rng.choice(capacities)
    gpu = None
    if capacity.devices and rng.random() < 0.6:
        device = capacity.devices[0]
        kind = rng.choice(("whole", "share", "model", "several"))
        gpu = _draw_gpu(rng, kind, device, len(capacity.devices))
    labels = capacity.labels if rng.random() < 0.1 else ()
    return Profile(
        cpu_milli=min(capacity.cpu_milli, rng.choice((250, 500, 1_000, 2_000))),
        memory_bytes=GIB * rng.choice((0, 1, 4)),
        gpu=gpu,
        labels=labels,
    )


def _draw_gpu(rng: Random, kind: str, device: Device, most: int) -> GpuNeed:
    match kind:
        case "share":
            return GpuNeed(milli=rng.choice((250, 500)))
        case "model":
            return GpuNeed(models=(device.model,), memory_min_bytes=device.memory_bytes)
        case "several":
            count = rng.randint(1, most)
            return GpuNeed(count=count, count_max=rng.randint(count, most))
        case _:
            return GpuNeed()


def _draw_behaviour(rng: Random, job: Job, task: Task) -> Behaviour:
    codes: tuple[int, ...] = (0,)
    fate = rng.random()
    if fate < 0.1:
        codes = (1,)
    elif fate < 0.2:
        codes = (3, 0)
    is_short = task.size >= SWARM[0] and rng.random() < 0.95
    spans_s = (0.005, 0.02) if is_short else (0.05, 1.0, 4.0, SLOWEST_S)
    return Behaviour(
        run_s=rng.choice(spans_s) * rng.uniform(0.5, 1.0),
        exit_codes=codes,
        start_failures=1 if rng.random() < 0.03 else 0,
        deaf=rng.random() < 0.2,
        straggles=job.speculate and rng.random() < 0.3,
        talks=rng.random() < 0.2,
    )


def _poison_one(rng: Random, errands: list[Errand], plans: Plans) -> None:
    """Make one task crash its workers, unless the job is a gang."""
    for errand in errands:
        group = errand.job.groups[0]
        if group.gang_min == 0 and not errand.job.at_most_once:
            victim = rng.choice(group.tasks).id
            plans[victim] = msgspec.structs.replace(plans[victim], poison=True)
            return
