"""What worlds with workers for a time put to the test: arrays that may be too long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from shoal.model.ids import GroupId, JobId, OwnerId, TaskId
from shoal.model.job import Group, Job, Retry, Task
from shoal.model.resources import Profile
from shoal.sim.faults.schedule import Burst
from shoal.sim.node.driver import Behaviour

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

HEAL_S: Final = 320.0
"""From then on all goes well."""

GRACE_S: Final = 1.0
START_S: Final = 10.0  # what a process may take beside its work, at most


def draw_bursts(rng: Random) -> tuple[tuple[float, float, Burst], ...]:
    """Draw when messages get lost, and how many of them."""
    bursts: list[tuple[float, float, Burst]] = []
    for _ in range(rng.randint(0, 2)):
        begin_s = rng.uniform(0.0, HEAL_S - 30.0)
        lossy = Burst(rng.uniform(0.0, 0.2), rng.uniform(0.0, 0.3), 0.0, 0.0)
        bursts.append((begin_s, begin_s + rng.uniform(1.0, 30.0), lossy))
    return tuple(bursts)


def draw_array(
    rng: Random,
    id_: JobId,
    owner: OwnerId,
    lengths_s: Sequence[float],
    behaviours: dict[TaskId, Behaviour],
) -> Job:
    """Draw tasks that take at most one of the lengths; most arrays tell which."""
    group = GroupId(f"{id_}.main")
    longest_s = rng.choice(lengths_s)
    limit_s = longest_s + START_S if rng.random() < 0.7 else None
    profile = Profile(cpu_milli=1_000)
    if limit_s is not None:
        profile = msgspec.structs.replace(profile, longest_s=int(limit_s + GRACE_S))
    tasks = tuple(
        Task(
            id=TaskId(f"{group}.{n}"),
            job=id_,
            group=group,
            index=n,
            profiles=(profile,),
            time_limit_s=limit_s,
            grace_s=GRACE_S,
        )
        for n in range(rng.randint(1, 25))
    )
    for task in tasks:
        behaviours[task.id] = Behaviour(run_s=rng.uniform(0.2, 0.9) * longest_s)
    groups = (Group(id=group, tasks=tasks),)
    return Job(id=id_, owner=owner, groups=groups, retry=Retry(max=0))
