"""Place where a loss grows least: the common part of FGD and forage.

A worker's loss says how badly its free GPUs suit typical tasks. It is computed for one
worker and for columns of all workers, in whole numbers both times, so that both ways
choose the same worker.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left
from math import floor, log
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, TypeVar

import numpy as np

from shoal.model.resources import Profile
from shoal.policy.ranking.ranking import Ranking
from shoal.policy.table.grid import Columns
from shoal.policy.table.rows import Ints as Column
from shoal.policy.table.rows import RowRoom, WorkerRow
from shoal.policy.table.shortlist import Key, WhenFuller
from shoal.policy.table.task_shapes import Kinds, Need, TaskShape

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Devices = Mapping[tuple[int, int, int], int]
    """Free share, free memory and kind of devices, and how many there are of each."""

K = TypeVar("K")
V = TypeVar("V")

Typical: TypeAlias = tuple[tuple[Profile, int], ...]
"""Profiles and how often each was seen."""


STEPS: Final = 100
"""A growth is one of so many steps."""


class FreeColumns(NamedTuple):
    """What is free on many workers.

    Devices are in rows and workers in columns: sums of long rows are the quick ones.
    """

    cpu_milli: Column
    memory_bytes: Column
    gpu_milli: Column
    gpu_memory: Column


class Gradient(Ranking):
    """Compares workers by how much their loss would grow, in a hundred steps.

    The steps are FGD's published score: 100 / (1 + exp(growth / 1000)),
    rounded down, growth in thousandths of a GPU. They matter: what grows about the same
    goes to the first worker, which keeps the others empty.
    """

    when_fuller: WhenFuller = "unclear"
    by_state = True
    memo_max: int = 65_536  # states of workers that are remembered

    def __init__(self, typical: Typical) -> None:
        self.typical = typical
        self._steps = _steps(sum(seen for _, seen in typical))
        self._kinds = Kinds()  # of the table that the rest is about
        self._kinds_known = 0
        self._needs: list[tuple[Need, int]] = []
        # For states of workers: their loss by what is free, also by the number of the
        # state, and their keys by shape.
        self._losses: dict[tuple[object, ...], int] = {}
        self._losses_now: dict[int, int] = {}
        self._keys: dict[tuple[Need, int], tuple[int]] = {}

    @abstractmethod
    def _counts(self, profile: Profile) -> bool:
        """Whether a typical profile matters for the loss."""

    @abstractmethod
    def _loss(
        self, cpu_milli: int, memory_bytes: int, total: int, devices: Devices
    ) -> int:
        """Return the loss of a worker with this much free; `total` is of all GPUs."""

    @abstractmethod
    def _loss_of_columns(self, columns: Columns, free: FreeColumns) -> Column:
        """Return the loss of many workers with this much free."""

    def key(self, need: Need, room: RowRoom) -> Key:
        """Return the step of the growth that such a task would mean."""
        if need.kinds is not self._kinds or len(need.kinds) != self._kinds_known:
            self._turn_to(need.kinds)
        if isinstance(room, WorkerRow):
            known = self._keys.get((need, room.state))
            return known or self._key_of_row(need, room)
        assert isinstance(room, Columns)
        return (np.searchsorted(self._steps, self._growth_of_columns(need, room)),)

    def _turn_to(self, kinds: Kinds) -> None:
        self._kinds, self._kinds_known = kinds, len(kinds)
        self._needs = [
            (Need(TaskShape(profile), kinds), seen)
            for profile, seen in self.typical
            if self._counts(profile)
        ]
        self._losses.clear()
        self._losses_now.clear()
        self._keys.clear()

    def _key_of_row(self, need: Need, row: WorkerRow) -> tuple[int]:
        free, memory = row.gpu_free, row.gpu_memory_free
        cpu_milli, memory_bytes = row.cpu_milli, row.memory_bytes
        before = self._losses_now.get(row.state)
        if before is None:
            before = self._of_state(row, cpu_milli, memory_bytes, free, memory)
            self._remember(self._losses_now, row.state, before)
        if need.gpu is not None:
            free, memory = list(free), list(memory)
            for place in row.pick(need):
                free[place] -= need.gpu_milli
                memory[place] -= need.sizes[row.kinds[place]]
        cpu_milli -= need.cpu_milli
        memory_bytes -= need.memory_bytes
        growth = self._of_state(row, cpu_milli, memory_bytes, free, memory) - before
        key = (bisect_left(self._steps, growth),)
        return self._remember(self._keys, (need, row.state), key)

    def _of_state(
        self,
        row: WorkerRow,
        cpu_milli: int,
        memory_bytes: int,
        free: list[int],
        memory: list[int],
    ) -> int:
        devices = sorted(zip(free, memory, row.kinds, strict=True))
        enough = self._kinds.memory_that_matters(len(devices))
        memory_bytes = min(memory_bytes, enough)
        state = (cpu_milli, memory_bytes, *devices)
        known = self._losses.get(state)
        if known is not None:
            return known
        alike: dict[tuple[int, int, int], int] = {}
        for device in devices:
            alike[device] = alike.get(device, 0) + 1
        loss = self._loss(cpu_milli, memory_bytes, sum(free), alike)
        return self._remember(self._losses, state, loss)

    def _growth_of_columns(self, need: Need, columns: Columns) -> Column:
        free, memory = columns.gpu_free, columns.gpu_memory_free
        cpu_milli, memory_bytes = columns.cpu_milli, columns.memory_bytes
        before = FreeColumns(cpu_milli, memory_bytes, free.T.copy(), memory.T.copy())
        if need.gpu is not None:
            picked = columns.picked(need)
            free = free - np.where(picked, need.gpu_milli, 0)
            memory = memory - np.where(picked, columns.sizes(need), 0)
        after = FreeColumns(
            cpu_milli - need.cpu_milli,
            memory_bytes - need.memory_bytes,
            free.T.copy(),
            memory.T.copy(),
        )
        loss = self._loss_of_columns
        return loss(columns, after) - loss(columns, before)

    def _usable_of_columns(
        self, columns: Columns, free: FreeColumns
    ) -> Iterator[tuple[Need, int, Column, Column]]:
        """Return typical needs, how often seen, devices that fit, and their shares."""
        usable_of: dict[tuple[int, ...], tuple[Column, Column]] = {}
        milli, memory = free.gpu_milli, free.gpu_memory
        for typical, seen in self._needs:
            asked = (typical.gpu_milli, *typical.sizes)
            if asked not in usable_of:
                sizes = columns.sizes(typical).T
                fits = (milli >= typical.gpu_milli) & (memory >= sizes)
                usable_of[asked] = fits.sum(axis=0), (milli * fits).sum(axis=0)
            yield typical, seen, *usable_of[asked]

    def _remember(self, memo: dict[K, V], state: K, value: V) -> V:
        if len(memo) >= self.memo_max:
            memo.clear()
        memo[state] = value
        return value


def usable(typical: Need, devices: Devices) -> tuple[int, int]:
    """Return the devices that fit a typical task, and how much is free of them."""
    share = fitting = 0
    for (free, memory, kind), count in devices.items():
        if free >= typical.gpu_milli and memory >= typical.sizes[kind]:
            share += count * free
            fitting += count
    return fitting, share


def _steps(sightings: int) -> list[int]:
    """Return the largest growth for each score from 99 down to 1.

    Growth is added up over all sightings of typical tasks, hence the factor. Whole
    numbers, so that one worker and columns of them are compared alike.
    """
    thousands = 1_000 * max(1, sightings)
    return [floor(thousands * log((100 - n) / n)) for n in range(99, 0, -1)]
