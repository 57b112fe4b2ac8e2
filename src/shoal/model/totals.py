"""A whole job's needs in numbers, before anything is placed.

Each task counts with its favourite profile and the least number of GPUs it asks for;
an elastic gang counts with all its tasks.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import msgspec

from shoal.model.job import TaskArray
from shoal.model.resources import GIB
from shoal.model.text.shortages import in_gib
from shoal.model.units import format_cpu

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from shoal.model.ids import GroupId
    from shoal.model.job import Group, Job
    from shoal.model.resources import Profile


class Amounts(msgspec.Struct, frozen=True):
    """Resources added up over several tasks."""

    cpu_milli: int = 0
    memory_bytes: int = 0
    disk_bytes: int = 0
    gpu_milli: int = 0

    def __add__(self, other: Amounts) -> Amounts:
        return Amounts(
            self.cpu_milli + other.cpu_milli,
            self.memory_bytes + other.memory_bytes,
            self.disk_bytes + other.disk_bytes,
            self.gpu_milli + other.gpu_milli,
        )

    def __str__(self) -> str:
        """Write the amounts for people, leaving out what is not needed."""
        parts = [f"{format_cpu(self.cpu_milli)} CPU"]
        if self.memory_bytes:
            parts.append(f"{_size_text(self.memory_bytes)} RAM")
        if self.disk_bytes:
            parts.append(f"{_size_text(self.disk_bytes)} disk")
        parts.append(
            f"{format_cpu(self.gpu_milli)} GPU" if self.gpu_milli else "no GPU"
        )
        return " · ".join(parts)


class Totals(msgspec.Struct, frozen=True):
    """A job's needs, and the most of each resource that it can use at once."""

    tasks: int
    whole: Amounts
    peak: Amounts

    def __str__(self) -> str:
        """Write one line for people."""
        tasks = "1 task" if self.tasks == 1 else f"{self.tasks} tasks"
        if self.peak == self.whole:
            return f"{tasks}: {self.whole}"
        return f"{tasks}: {self.whole}; at most {self.peak} at once"


def totals(job: Job) -> Totals:
    """Add up what `job` needs.

    The peak is exact for each resource on its own: no order in which the groups may
    run needs more at once, and some order needs as much.
    """
    needed = {group.id: _amounts_of_group(group) for group in job.groups}
    return Totals(
        tasks=sum(len(group.tasks) for group in job.groups),
        whole=sum(needed.values(), start=Amounts()),
        peak=_peak(job.groups, needed),
    )


def amounts_of(profile: Profile) -> Amounts:
    """Return what one task of `profile` takes."""
    gpu = profile.gpu
    return Amounts(
        profile.cpu_milli,
        profile.memory_bytes,
        profile.disk_bytes,
        gpu.count * gpu.milli if gpu else 0,
    )


def _size_text(amount_bytes: int) -> str:
    if amount_bytes < GIB:
        return f"{amount_bytes / (GIB >> 10):.4g} MiB"
    if amount_bytes < 10_000 * GIB:
        return in_gib(amount_bytes)
    return f"{amount_bytes / (GIB << 10):,.1f} TiB"


def _amounts_of_group(group: Group) -> Amounts:
    if isinstance(group.tasks, TaskArray):
        of_each = msgspec.structs.astuple(amounts_of(group.tasks.first.profiles[0]))
        return Amounts(*(amount * len(group.tasks) for amount in of_each))
    return sum((amounts_of(task.profiles[0]) for task in group.tasks), start=Amounts())


def _peak(groups: tuple[Group, ...], needed: Mapping[GroupId, Amounts]) -> Amounts:
    if not any(group.needs for group in groups):
        return sum(needed.values(), start=Amounts())
    before = _all_needs(groups)
    return Amounts(
        **{
            field: _heaviest_at_once(
                {group: getattr(amounts, field) for group, amounts in needed.items()},
                before,
            )
            for field in Amounts.__struct_fields__
        }
    )


def _all_needs(groups: Iterable[Group]) -> dict[GroupId, frozenset[GroupId]]:
    """Return what must end before each group starts; groups come in order."""
    before: dict[GroupId, frozenset[GroupId]] = {}
    for group in groups:
        before[group.id] = frozenset(group.needs).union(
            *(before[needed] for needed in group.needs)
        )
    return before


def _heaviest_at_once(
    weight: Mapping[GroupId, int], before: Mapping[GroupId, frozenset[GroupId]]
) -> int:
    """Return the most weight of groups none of which is before another.

    By Dilworth's theorem that is all weight less what can be handed on from groups to
    later ones, each giving and taking at most its own weight: a maximum flow.
    """
    gives, takes = dict(weight), dict(weight)
    flow: dict[tuple[GroupId, GroupId], int] = {}
    while path := _way_to_hand_on(gives, takes, before, flow):
        backs = [flow[pair] for pair in path[1::2]]
        amount = min(gives[path[0][0]], takes[path[-1][1]], *backs)
        gives[path[0][0]] -= amount
        takes[path[-1][1]] -= amount
        for place, pair in enumerate(path):
            flow[pair] = flow.get(pair, 0) + (-amount if place % 2 else amount)
    return sum(weight.values()) - sum(flow.values())


def _way_to_hand_on(
    gives: Mapping[GroupId, int],
    takes: Mapping[GroupId, int],
    before: Mapping[GroupId, frozenset[GroupId]],
    flow: Mapping[tuple[GroupId, GroupId], int],
) -> list[tuple[GroupId, GroupId]]:
    """Return pairs along which more can be handed on, every second one taken back."""
    ways = {
        giver: list[tuple["GroupId", "GroupId"]]() for giver in gives if gives[giver]
    }
    seen: dict[GroupId, bool] = {}
    queue = deque(ways)
    while queue:
        giver = queue.popleft()
        for taker, earlier in before.items():
            if giver not in earlier or taker in seen:
                continue
            seen[taker] = True
            way = [*ways[giver], (giver, taker)]
            if takes[taker]:
                return way
            for other in gives:
                if other not in ways and flow.get((other, taker)):
                    ways[other] = [*way, (other, taker)]
                    queue.append(other)
    return []
