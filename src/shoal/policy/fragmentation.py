"""Place so that the GPUs that stay free can still be used: fragmentation gradient.

The fragmentation of a worker is how much GPU stays free there that a typical task
cannot use, on average. FGD places where that grows least (USENIX ATC 2023). What is
typical is given, or learned from the tasks that come by.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, final

import numpy as np

from shoal.model.resources import Profile
from shoal.policy.gradient import Gradient, Typical, usable
from shoal.policy.grid import Columns
from shoal.policy.grid import Ints as Column

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shoal.policy.gradient import Devices

TYPICAL_MAX: Final = 32
"""Profiles that count as typical."""

TYPICAL_SHARE: Final = 0.95
"""Rarer profiles than the most frequent ones that make up this share do not count."""

RELEARN_AT: Final = 4_096
"""Tasks seen until what is typical is looked at anew, and old ones count half.

At first it is looked at sooner: at 1, 2, 4 and so on.
"""

ALIKE_WITHIN: Final = 0.05
"""Shares of profiles that differ by less than this are the same for all purposes."""


@final
class Fgd(Gradient):
    """Least fragmentation: keep what is free usable for typical tasks."""

    name = "fgd"

    def _counts(self, profile: Profile) -> bool:
        return True

    def _loss(
        self, cpu_milli: int, memory_bytes: int, total: int, devices: Devices
    ) -> int:
        fragmentation = 0
        for typical, seen in self._needs:
            share = 0
            if cpu_milli >= typical.cpu_milli and memory_bytes >= typical.memory_bytes:
                fitting, share = usable(typical, devices)
                share = share if fitting >= typical.gpus_min else 0
            fragmentation += seen * (total - share)
        return fragmentation

    def _loss_of_columns(
        self,
        columns: Columns,
        cpu_milli: Column,
        memory_bytes: Column,
        free: Column,
        memory: Column,
    ) -> Column:
        total = free.sum(axis=0)
        fragmentation: Column = np.zeros_like(total)
        for typical, seen, fitting, share in self._usable_of_columns(
            columns, free, memory
        ):
            enough = fitting >= typical.gpus_min
            enough &= cpu_milli >= typical.cpu_milli
            enough &= memory_bytes >= typical.memory_bytes
            fragmentation += seen * (total - share * enough)
        return fragmentation


@final
class LearnedFgd:
    """FGD for what the tasks seen so far are like. Old ones count less and less."""

    name = "fgd"

    def __init__(self) -> None:
        self._seen: Counter[Profile] = Counter()
        self._sightings = 0
        self._fgd = Fgd(())

    def see(self, profile: Profile, count: int) -> Fgd:
        """Count tasks that want to be placed; return the ranking to place them by."""
        before, self._sightings = self._sightings, self._sightings + count
        self._seen[profile] += count
        if before.bit_length() < self._sightings.bit_length():
            typical = typical_of(self._seen)
            if not _alike(typical, self._fgd.typical):
                self._fgd = Fgd(typical)
        if self._sightings >= RELEARN_AT:
            self._sightings = RELEARN_AT // 2
            self._seen = Counter({p: n // 2 for p, n in self._seen.items() if n > 1})
        return self._fgd


def typical_of(seen: Mapping[Profile, int]) -> Typical:
    """Return the most frequent profiles, which make up most of what was seen."""
    order = sorted(seen.items(), key=lambda item: (-item[1], repr(item[0])))
    enough = TYPICAL_SHARE * sum(seen.values())
    typical: list[tuple[Profile, int]] = []
    covered = 0
    for profile, count in order[:TYPICAL_MAX]:
        typical.append((profile, count))
        covered += count
        if covered >= enough:
            break
    return tuple(typical)


def _alike(one: Typical, other: Typical) -> bool:
    """Tell whether it is not worth it to score all workers anew."""
    ones, others = dict(one), dict(other)
    if ones.keys() != others.keys():
        return False
    all_ones, all_others = sum(ones.values()), sum(others.values())
    return all(
        abs(ones[profile] / all_ones - others[profile] / all_others) < ALIKE_WITHIN
        for profile in ones
    )
