"""Forage: keep free GPUs usable, and count only those that there is CPU left to feed.

FGD calls a free GPU usable by a typical task if one such task fits. But a worker with
eight free GPUs and CPU for one more task can use one of them, not eight. So here the
GPUs that a typical task could use count only as far as the CPU and the memory of the
worker go round. Everything else is as in FGD, of which this is a refinement.
"""

from __future__ import annotations

from collections import Counter
from math import floor, log
from typing import TYPE_CHECKING, Final, final

import numpy as np

from shoal.model.resources import Profile
from shoal.policy.fragmentation import LearnedFgd, Typical
from shoal.policy.grid import Columns
from shoal.policy.grid import Ints as Column
from shoal.policy.rows import Room, Row
from shoal.policy.shapes import Kinds, Need, Shape
from shoal.policy.shortlist import Key, WhenFuller

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

MEMO_MAX: Final = 131_072
"""States of workers whose waste is remembered."""


@final
class Forage:
    """Least waste: keep free GPUs usable that there is CPU and memory left to feed."""

    name = "forage"
    when_fuller: WhenFuller = "unclear"

    def __init__(self, typical: Typical) -> None:
        self.typical = typical
        self._steps = _steps(sum(seen for _, seen in typical))
        self._kinds = Kinds()  # of the table that the rest is about
        self._kinds_known = 0
        self._needs: list[tuple[Need, int]] = []
        # For states of workers: their waste, and the step of its growth by shape.
        self._waste: dict[Hashable, int] = {}
        self._step: dict[Hashable, int] = {}

    def key(self, need: Need, room: Room) -> Key:
        """Compare by how much the waste would grow, in the steps of FGD's score."""
        if need.kinds is not self._kinds or len(need.kinds) != self._kinds_known:
            self._turn_to(need.kinds)
        if isinstance(room, Row):
            return (self._step_of_row(need, room),)
        assert isinstance(room, Columns)
        return (np.searchsorted(self._steps, self._growth_of_columns(need, room)),)

    def _turn_to(self, kinds: Kinds) -> None:
        self._kinds, self._kinds_known = kinds, len(kinds)
        self._needs = [
            (Need(Shape(profile), kinds), seen)
            for profile, seen in self.typical
            if profile.gpu is not None
        ]
        self._waste.clear()
        self._step.clear()

    def _step_of_row(self, need: Need, row: Row) -> int:
        state = (need, row.state)
        known = self._step.get(state)
        if known is not None:
            return known
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
        step = int(np.searchsorted(self._steps, growth))
        return _remember(self._step, state, step)

    def _of_state(
        self,
        row: Row,
        cpu_milli: int,
        memory_bytes: int,
        free: list[int],
        memory: list[int],
    ) -> int:
        """Return how much free GPU would be of no use if this much were free here."""
        devices = sorted(zip(free, memory, row.kinds, strict=True))
        state = (cpu_milli, memory_bytes, *devices)
        known = self._waste.get(state)
        if known is not None:
            return known
        alike = Counter(devices)
        total = sum(free)
        used = sum(
            seen * _usable(typical, cpu_milli, memory_bytes, alike)
            for typical, seen in self._needs
        )
        seen_all = sum(seen for _, seen in self.typical)
        return _remember(self._waste, state, seen_all * total - used)

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
        seen_all = sum(seen for _, seen in self.typical)
        waste: Column = seen_all * free.sum(axis=0)
        usable_of: dict[tuple[int, ...], tuple[Column, Column]] = {}
        for typical, seen in self._needs:
            asked = (typical.gpu_milli, *typical.sizes)
            if asked not in usable_of:
                fits = (free >= typical.gpu_milli) & (
                    memory >= columns.sizes(typical).T
                )
                usable_of[asked] = fits.sum(axis=0), (free * fits).sum(axis=0)
            fitting, usable = usable_of[asked]
            tasks = fitting // typical.gpus_min
            fed = tasks
            if typical.cpu_milli:
                fed = np.minimum(fed, np.maximum(cpu_milli, 0) // typical.cpu_milli)
            if typical.memory_bytes:
                room = np.maximum(memory_bytes, 0) // typical.memory_bytes
                fed = np.minimum(fed, room)
            waste -= seen * (usable * fed // np.maximum(tasks, 1))
        return waste


@final
class LearnedForage:
    """Least waste of GPUs that CPU and memory can feed, for tasks like those seen."""

    name = "forage"

    def __init__(self) -> None:
        self._fgd = LearnedFgd()  # It learns what is typical; we only ask it for that.
        self._forage = Forage(())

    def see(self, profile: Profile, count: int) -> Forage:
        """Count tasks that want to be placed; return the ranking to place them by."""
        typical = self._fgd.see(profile, count).typical
        if typical is not self._forage.typical:
            self._forage = Forage(typical)
        return self._forage


def _steps(sightings: int) -> list[int]:
    """Return the largest growth for each score from 99 down to 1, as FGD rounds it."""
    thousands = 1_000 * max(1, sightings)
    return [floor(thousands * log((100 - n) / n)) for n in range(99, 0, -1)]


def _remember(memo: dict[Hashable, int], state: Hashable, value: int) -> int:
    if len(memo) >= MEMO_MAX:
        memo.clear()
    memo[state] = value
    return value


def _usable(
    typical: Need,
    cpu_milli: int,
    memory_bytes: int,
    devices: Mapping[tuple[int, int, int], int],
) -> int:
    """Return how much free GPU tasks of a kind could use, as far as they can be fed."""
    usable = fitting = 0
    for (free, memory, kind), count in devices.items():
        if free >= typical.gpu_milli and memory >= typical.sizes[kind]:
            usable += count * free
            fitting += count
    tasks = fitting // typical.gpus_min
    if tasks == 0:
        return 0
    fed = tasks
    if typical.cpu_milli:
        fed = min(fed, max(0, cpu_milli) // typical.cpu_milli)
    if typical.memory_bytes:
        fed = min(fed, max(0, memory_bytes) // typical.memory_bytes)
    return usable * fed // tasks
