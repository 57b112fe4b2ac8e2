"""FGD: place where the GPUs that stay free remain usable by typical tasks.

The fragmentation of a worker is how much GPU stays free there that a typical task
cannot use, on average. FGD places where that grows least (USENIX ATC 2023). What is
typical is given, or learned from the tasks that come by.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, final

import numpy as np

from shoal.model.resources import Profile
from shoal.policy.ranking.gradient import Gradient, Typical, usable
from shoal.policy.ranking.ranking import RankedPolicy
from shoal.policy.table.grid import Columns
from shoal.policy.table.rows import Ints as Column

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shoal.policy.ranking.gradient import Devices, FreeColumns

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

    def _loss_of_columns(self, columns: Columns, free: FreeColumns) -> Column:
        total = free.gpu_milli.sum(axis=0)
        fragmentation: Column = np.zeros_like(total)
        for typical, seen, fitting, share in self._usable_of_columns(columns, free):
            enough = fitting >= typical.gpus_min
            enough &= free.cpu_milli >= typical.cpu_milli
            enough &= free.memory_bytes >= typical.memory_bytes
            fragmentation += seen * (total - share * enough)
        return fragmentation


class LearnedGradient(RankedPolicy):
    """Ranks by a gradient for the tasks seen so far; old ones count less and less."""

    make: type[Gradient]  # of what is typical

    def __init__(self) -> None:
        self.name = self.make.name
        self._seen: Counter[Profile] = Counter()
        self._sightings = 0
        self._gradient = self.make(())

    def ranking_for(self, profile: Profile, count: int) -> Gradient:
        """Count the tasks; return a gradient for what is typical now."""
        before, self._sightings = self._sightings, self._sightings + count
        self._seen[profile] += count
        if before.bit_length() < self._sightings.bit_length():
            typical = typical_of(self._seen)
            if not _alike(typical, self._gradient.typical):
                self._gradient = self.make(typical)
        if self._sightings >= RELEARN_AT:
            self._sightings = RELEARN_AT // 2
            self._seen = Counter({p: n // 2 for p, n in self._seen.items() if n > 1})
        return self._gradient


@final
class LearnedFgd(LearnedGradient):
    """FGD for tasks like those seen so far; old ones count less and less."""

    make = Fgd


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
    """Whether two lists are too similar to score all workers anew."""
    ones, others = dict(one), dict(other)
    if ones.keys() != others.keys():
        return False
    all_ones, all_others = sum(ones.values()), sum(others.values())
    return all(
        abs(ones[profile] / all_ones - others[profile] / all_others) < ALIKE_WITHIN
        for profile in ones
    )
