"""Preemption: which running leases to end so that a more important task starts.

What counts is what would be destroyed: the work since a task began, or since its last
checkpoint, in resources times seconds. A gang loses that of all its members, and once,
however many of them end.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from shoal.model.ids import GroupId, LeaseId
from shoal.model.resources import Allocation, Ledger, Profile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

EXACT_MAX: Final = 10
"""Candidates up to which all sets are tried; beyond, a good set is grown and cut."""

CPUS_PER_GPU: Final = 16
"""A GPU is worth as much as so many CPUs."""

Cost: TypeAlias = tuple[tuple[tuple[int, float], ...], int, tuple[LeaseId, ...]]


class Victim(msgspec.Struct, frozen=True, kw_only=True):
    """A lease that may have to end early, and what would be lost with it."""

    id: LeaseId
    allocation: Allocation
    priority: int
    unsaved_s: float = 0.0  # the work of so long would be done again
    gang: GroupId = GroupId("")  # of which it is one task
    gang_size: int = 1
    preemptible: bool = True

    @property
    def destroyed(self) -> float:
        """What would be lost, of the whole gang: in thousandths of CPUs, by seconds."""
        gpu_milli = sum(share.milli for share in self.allocation.shares)
        milli = self.allocation.cpu_milli + CPUS_PER_GPU * gpu_milli
        return milli * self.unsaved_s * self.gang_size


def choose_victims(
    profile: Profile,
    free: Ledger,
    victims: Sequence[Victim],
    priority: int,
    count: int = 1,
) -> tuple[LeaseId, ...] | str:
    """Return the cheapest leases to end so that `count` tasks fit, or why none will.

    Only preemptible leases of a lower priority than `priority` are displaced. Sets
    are compared by what they destroy at each priority, from the highest down, then by
    their number; so none of those returned could be spared. Empty if the tasks fit
    already. Up to `EXACT_MAX` candidates the answer is the cheapest of all.
    """
    allowed = [v for v in victims if v.preemptible and v.priority < priority]
    allowed.sort(key=lambda victim: cost([victim]))
    lacking = _lacking(profile, free, allowed, count)
    if lacking is not None and not allowed:
        return f"no lease here may give way to priority {priority}"
    if lacking is not None:
        return f"{lacking} even without {_described(len(allowed))} below {priority}"
    chosen: Sequence[Victim]
    if len(allowed) <= EXACT_MAX:
        chosen = next(s for s in _by_cost(allowed) if _enough(profile, free, s, count))
    else:
        chosen = _pruned(profile, free, _grown(profile, free, allowed, count), count)
    return tuple(sorted(victim.id for victim in chosen))


def cost(victims: Iterable[Victim]) -> Cost:
    """Return what to compare sets of victims by; the smallest is the cheapest."""
    chosen = sorted(victims, key=lambda victim: victim.id)
    destroyed: dict[int, dict[str, float]] = {}
    for victim in chosen:
        lost = destroyed.setdefault(victim.priority, {})
        whose = victim.gang or victim.id
        lost[whose] = max(lost.get(whose, 0.0), victim.destroyed)
    return (
        tuple(
            (rank, sum(destroyed[rank].values())) for rank in sorted(destroyed)[::-1]
        ),
        len(chosen),
        tuple(victim.id for victim in chosen),
    )


def _by_cost(victims: Sequence[Victim]) -> Iterator[tuple[Victim, ...]]:
    sets = (s for n in range(len(victims) + 1) for s in combinations(victims, n))
    yield from sorted(sets, key=cost)


def _grown(
    profile: Profile, free: Ledger, victims: Sequence[Victim], count: int
) -> Sequence[Victim]:
    """Return the shortest prefix that is enough; victims come cheapest first."""
    low, high = 0, len(victims)
    while low < high:
        middle = (low + high) // 2
        if _enough(profile, free, victims[:middle], count):
            high = middle
        else:
            low = middle + 1
    return victims[:low]


def _pruned(
    profile: Profile, free: Ledger, victims: Sequence[Victim], count: int
) -> list[Victim]:
    """Spare every victim that can be spared, the most expensive first."""
    kept = list(victims)
    for victim in reversed(victims):
        others = [other for other in kept if other is not victim]
        if _enough(profile, free, others, count):
            kept = others
    return kept


def _enough(
    profile: Profile, free: Ledger, ended: Iterable[Victim], count: int
) -> bool:
    return _lacking(profile, free, ended, count) is None


def _lacking(
    profile: Profile, free: Ledger, ended: Iterable[Victim], count: int
) -> str | None:
    """Say what is lacking for `count` tasks once these leases have ended."""
    ledger = free.copy()
    for victim in ended:
        ledger.give(victim.allocation)
    if profile.gpu is not None:  # No lease is ended for more than the least.
        gpu = msgspec.structs.replace(profile.gpu, count_max=profile.gpu.count)
        profile = msgspec.structs.replace(profile, gpu=gpu)
    for _ in range(count):
        found = ledger.fit(profile)
        if isinstance(found, str):
            return found
        ledger.take(found)
    return None


def _described(count: int) -> str:
    return "the one lease" if count == 1 else f"the {count} leases"
