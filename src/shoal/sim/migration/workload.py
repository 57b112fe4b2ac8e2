"""Draw worlds with narrow links, and gangs that save checkpoints and may move.

Each of the two sites of such a world is a leaf, so a place is good or bad: a gang is
under one switch or not. Its policy draws workers at random, so many gangs begin badly,
and often a better place is free.
"""

from __future__ import annotations

from random import Random
from typing import Final

import msgspec

from shoal.model.ids import JobId, NodeId
from shoal.model.job import Job, Retry
from shoal.model.resources import Capacity, Profile
from shoal.policy.table.domains import OVERSUBSCRIPTION
from shoal.sim.node.driver import Behaviour
from shoal.sim.node.host import NodeSpec
from shoal.sim.workload import OWNERS, Errand, Workload, make_group, room_for

WORLDS_SHARE: Final = 0.12  # share of worlds with such gangs
JOBS: Final = (1, 3)
TASKS: Final = (2, 3)
RUN_S: Final = (60.0, 120.0)
SAVES: Final = 4  # starts of a gang that save a checkpoint, when half is done
NARROW: Final = "16"
PROFILE: Final = Profile(cpu_milli=500)


def moves_in(rng: Random) -> bool:
    """Draw whether a world has gangs that may move."""
    return rng.random() < WORLDS_SHARE


def with_leaf(spec: NodeSpec) -> NodeSpec:
    """Make the site of a worker its leaf, with narrow links to the other."""
    capacity = spec.capacity
    if not isinstance(capacity, Capacity):
        return spec
    more = (("leaf", dict(capacity.labels)["site"]), (OVERSUBSCRIPTION, NARROW))
    labels = (*capacity.labels, *more)
    wider = msgspec.structs.replace(capacity, labels=labels)
    return msgspec.structs.replace(spec, capacity=wider)


def with_gangs(
    rng: Random, workload: Workload, schedulers: list[NodeId], rooms: list[Capacity]
) -> Workload:
    """Add gangs that save checkpoints to a workload."""
    errands = list(workload.errands)
    plans = dict(workload.plans)
    slots = sum(room_for(PROFILE, capacity) for capacity in rooms)
    for number in range(rng.randint(*JOBS)):
        job = _draw_gang(rng, f"m{number}", min(rng.randint(*TASKS), slots))
        errands.append(
            Errand(
                job=job, scheduler=rng.choice(schedulers), at_s=rng.uniform(0.5, 20.0)
            )
        )
        run_s = rng.uniform(*RUN_S)
        habit = Behaviour(run_s=run_s, talks=True, saves=SAVES)
        plans.update({task.id: habit for task in job.tasks()})
    return msgspec.structs.replace(workload, errands=tuple(errands), plans=plans)


def _draw_gang(rng: Random, id_: str, size: int) -> Job:
    group = make_group(id_, "gang", size, (PROFILE,))
    return Job(
        id=JobId(id_),
        owner=rng.choice(OWNERS),
        groups=(msgspec.structs.replace(group, gang_min=size),),
        policy="random",
        preemptible=rng.random() < 0.9,
        retry=Retry(max=3, on=("worker-lost", "failed")),
    )
