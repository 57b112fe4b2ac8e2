"""Place so that the GPUs that stay free can still be used: fragmentation gradient.

The fragmentation of a worker is how much GPU stays free there that a typical task
cannot use, on average. FGD places where that grows least (USENIX ATC 2023). What is
typical is given, or learned from the tasks that come by.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from math import floor, log
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar, final

import numpy as np

from shoal.model.resources import Profile
from shoal.policy.grid import Columns
from shoal.policy.grid import Ints as Column
from shoal.policy.rows import Room, Row, State
from shoal.policy.shapes import Kinds, Need, Shape
from shoal.policy.shortlist import Key, WhenFuller

if TYPE_CHECKING:
    from collections.abc import Mapping

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

MEMO_MAX: Final = 65_536
"""States of workers whose fragmentation is remembered."""

K = TypeVar("K")
V = TypeVar("V")

Typical: TypeAlias = tuple[tuple[Profile, int], ...]
"""Profiles and how often each was seen."""


@final
class Fgd:
    """Least fragmentation: keep what is free usable for typical tasks."""

    name = "fgd"
    when_fuller: WhenFuller = "unclear"

    def __init__(self, typical: Typical) -> None:
        self.typical = typical
        self._steps = _steps(sum(seen for _, seen in typical))
        self._kinds = Kinds()  # of the table that the rest is about
        self._kinds_known = 0
        self._needs: list[tuple[Need, int]] = []
        # For states of workers: their fragmentation, and their keys by shape.
        self._fragmentation: dict[State, int] = {}
        self._keys: dict[tuple[Need, State], tuple[int]] = {}

    def key(self, need: Need, room: Room) -> Key:
        """Compare by how much the fragmentation would grow, in a hundred steps.

        The steps are those of the published score: 100 / (1 + exp(growth / 1000)),
        rounded down, growth in thousandths of a GPU. They matter: what grows about
        the same goes to the first worker, which keeps the others empty.
        """
        if need.kinds is not self._kinds or len(need.kinds) != self._kinds_known:
            self._turn_to(need.kinds)
        if isinstance(room, Row):
            known = self._keys.get((need, room.state))
            return known or self._key_of_row(need, room)
        assert isinstance(room, Columns)
        return (np.searchsorted(self._steps, self._growth_of_columns(need, room)),)

    def _turn_to(self, kinds: Kinds) -> None:
        self._kinds, self._kinds_known = kinds, len(kinds)
        self._needs = [
            (Need(Shape(profile), kinds), seen) for profile, seen in self.typical
        ]
        self._fragmentation.clear()
        self._keys.clear()

    def _key_of_row(self, need: Need, row: Row) -> tuple[int]:
        free, memory = row.gpu_free, row.gpu_memory_free
        cpu_milli, memory_bytes = row.cpu_milli, row.memory_bytes
        before = self._of_state(row, cpu_milli, memory_bytes, free, memory)
        if need.gpu is not None:
            free, memory = list(free), list(memory)
            for place in row.pick(need):
                free[place] -= need.gpu_milli
                memory[place] -= need.sizes[row.kinds[place]]
        cpu_milli -= need.cpu_milli
        memory_bytes -= need.memory_bytes
        growth = self._of_state(row, cpu_milli, memory_bytes, free, memory) - before
        key = (bisect_left(self._steps, growth),)
        return _remember(self._keys, (need, row.state), key)

    def _of_state(
        self,
        row: Row,
        cpu_milli: int,
        memory_bytes: int,
        free: list[int],
        memory: list[int],
    ) -> int:
        """Return the fragmentation of a worker if this much were free there."""
        devices = sorted(zip(free, memory, row.kinds, strict=True))
        state = (cpu_milli, memory_bytes, *devices)
        known = self._fragmentation.get(state)
        if known is not None:
            return known
        alike = Counter(devices)
        total = sum(free)
        fragmentation = 0
        for typical, seen in self._needs:
            usable = 0
            if cpu_milli >= typical.cpu_milli and memory_bytes >= typical.memory_bytes:
                usable = _usable(typical, alike)
            fragmentation += seen * (total - usable)
        return _remember(self._fragmentation, state, fragmentation)

    def _growth_of_columns(self, need: Need, columns: Columns) -> Column:
        free, memory = columns.gpu_free, columns.gpu_memory_free
        cpu_milli, memory_bytes = columns.cpu_milli, columns.memory_bytes
        before = self._of_states(columns, cpu_milli, memory_bytes, free, memory)
        if need.gpu is not None:
            picked = columns.picked(need)
            free = free - np.where(picked, need.gpu_milli, 0)
            memory = memory - np.where(picked, columns.sizes(need), 0)
        cpu_milli = cpu_milli - need.cpu_milli
        memory_bytes = memory_bytes - need.memory_bytes
        after = self._of_states(columns, cpu_milli, memory_bytes, free, memory)
        return after - before

    def _of_states(
        self,
        columns: Columns,
        cpu_milli: Column,
        memory_bytes: Column,
        free: Column,
        memory: Column,
    ) -> Column:
        # Devices in rows and workers in columns: sums of long rows are the quick ones.
        free, memory = free.T.copy(), memory.T.copy()
        total = free.sum(axis=0)
        fragmentation: Column = np.zeros_like(total)
        usable_of: dict[tuple[int, ...], tuple[Column, Column]] = {}
        for typical, seen in self._needs:
            asked = (typical.gpu_milli, *typical.sizes)
            if asked not in usable_of:
                sizes = columns.sizes(typical).T
                fits = (free >= typical.gpu_milli) & (memory >= sizes)
                usable_of[asked] = fits.sum(axis=0), (free * fits).sum(axis=0)
            fitting, usable = usable_of[asked]
            enough = fitting >= typical.gpus_min
            enough &= cpu_milli >= typical.cpu_milli
            enough &= memory_bytes >= typical.memory_bytes
            fragmentation += seen * (total - usable * enough)
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


def _steps(sightings: int) -> list[int]:
    """Return the largest growth for each score from 99 down to 1.

    Growth is added up over all sightings of typical tasks, hence the factor. Whole
    numbers, so that one worker and columns of them are compared alike.
    """
    thousands = 1_000 * max(1, sightings)
    return [floor(thousands * log((100 - n) / n)) for n in range(99, 0, -1)]


def _remember(memo: dict[K, V], state: K, value: V) -> V:
    if len(memo) >= MEMO_MAX:
        memo.clear()
    memo[state] = value
    return value


def _usable(typical: Need, devices: Mapping[tuple[int, int, int], int]) -> int:
    """Return how much free GPU a task could use: nothing if too few devices fit."""
    usable = fitting = 0
    for (free, memory, kind), count in devices.items():
        if free >= typical.gpu_milli and memory >= typical.sizes[kind]:
            usable += count * free
            fitting += count
    return usable if fitting >= typical.gpus_min else 0
