"""GPU packing and GPU clustering: two rankings published along with FGD."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, final

import numpy as np

from shoal.model.ids import NodeId
from shoal.model.resources import WHOLE_GPU_MILLI
from shoal.policy.interface import ChooseBy
from shoal.policy.ranking.ranking import Ranking
from shoal.policy.table.grid import Columns, Grid
from shoal.policy.table.rows import NO_KIND, Ints, RowRoom, WorkerRow
from shoal.policy.table.shortlist import Key, Shortlist, WhenFuller
from shoal.policy.table.task_shapes import Need

if TYPE_CHECKING:
    from collections.abc import Collection

    from shoal.policy.interface import PlacementRequest
    from shoal.policy.table.worker_table import WorkerTable

SCORE_MAX: Final = 100
LARGEST_MILLI: Final = 8 * WHOLE_GPU_MILLI
"""GPU of the largest worker that the published scores are scaled to."""


BIT_MAX: Final = 62
"""Tasks with more GPUs than this count as one size."""

NODES_MAX: Final = 200_000
"""Nodes remembered; beyond that all are forgotten, as some of them are long gone."""


@final
class GpuPacking(Ranking):
    """Fill GPUs in use first, then free ones of workers in use, then idle workers."""

    name = "gpu-packing"
    when_fuller: WhenFuller = "unclear"

    def key(self, need: Need, room: RowRoom) -> Key:
        """Compare which of the three it would be, then how much would be touched."""
        if need.gpu is None:
            return (0,)
        if isinstance(room, WorkerRow):
            return (-_packing_of_row(need, room),)
        assert isinstance(room, Columns)
        return (-_packing_of_columns(need, room),)


@final
class GpuClustering(Ranking):
    """Keep tasks together that want the same number of GPUs, or shares of one.

    It remembers what it placed where, and nothing else: what others placed, or what
    has ended since, it does not know.
    """

    name = "gpu-clustering"
    when_fuller: WhenFuller = "unclear"

    def __init__(self) -> None:
        self._sizes: dict[NodeId, int] = {}  # a bit for each number of GPUs there
        self._grid = Grid()

    def chooser(self, request: PlacementRequest, table: WorkerTable) -> ChooseBy:
        """Choose by `key`, and remember what was placed where."""
        self._grid = table.grid
        shortlist = table.shortlist(request.shape, self)
        return ChooseBy(shortlist.need, partial(self._choose, shortlist, table))

    def _choose(
        self, shortlist: Shortlist, table: WorkerTable, skip: Collection[NodeId]
    ) -> int | None:
        index = shortlist.best(skip)
        if index is not None and shortlist.need.gpu is not None:
            row = table.row(index)
            if len(self._sizes) > NODES_MAX:
                self._sizes.clear()
            known = self._sizes.get(row.node, 0)
            self._sizes[row.node] = known | _bit(shortlist.need)
        return index

    def key(self, need: Need, room: RowRoom) -> Key:
        """Compare by the sizes of tasks that are there, then by how full it is."""
        if need.gpu is None:
            return (0,)
        fullness = SCORE_MAX // 4 * (LARGEST_MILLI - room.gpu_milli) // LARGEST_MILLI
        if isinstance(room, WorkerRow):
            sizes, own = self._sizes.get(room.node, 0), _bit(need)
            together = 75 if sizes == own else 50 if sizes & own else 0 if sizes else 25
            return (-(together + fullness),)
        rows = self._grid.rows
        known = [self._sizes.get(row.node, 0) if row else 0 for row in rows]
        column = np.zeros_like(room.gpu_milli)
        column[: len(known)] = known
        return (-(_togetherness(column, _bit(need)) + fullness),)


def _packing_of_row(need: Need, row: WorkerRow) -> int:
    """Score one worker as `_packing_of_columns` does; numpy is slow for one number."""
    free = row.gpu_free
    gpus = len(free)
    if free.count(WHOLE_GPU_MILLI) == gpus:
        return max(SCORE_MAX // 3 - gpus, gpus)
    if need.whole and row.kind != NO_KIND and need.gpus_min == need.gpus_max:
        return max(SCORE_MAX // 2 - need.gpus_min, SCORE_MAX // 3)
    picked = [free[place] for place in row.pick(need)]
    if whole := picked.count(WHOLE_GPU_MILLI):
        return max(SCORE_MAX // 2 - whole, SCORE_MAX // 3)
    left_percent = sum([share * 100 // WHOLE_GPU_MILLI for share in picked])
    return max(SCORE_MAX - left_percent // 10, SCORE_MAX // 2)


def _packing_of_columns(need: Need, columns: Columns) -> Ints:
    free = columns.gpu_free
    taken = np.where(columns.picked(need), free, 0)
    whole: Ints = (taken == WHOLE_GPU_MILLI).sum(axis=1)
    left_percent: Ints = (taken * 100 // WHOLE_GPU_MILLI).sum(axis=1)
    gpus = columns.gpu_milli_all // WHOLE_GPU_MILLI
    idle = (free == WHOLE_GPU_MILLI).sum(axis=1) == gpus
    untouched = np.maximum(SCORE_MAX // 3 - gpus, gpus)
    touched = np.maximum(SCORE_MAX // 2 - whole, SCORE_MAX // 3)
    shared = np.maximum(SCORE_MAX - left_percent // 10, SCORE_MAX // 2)
    busy: Ints = np.where(whole > 0, touched, shared)
    score: Ints = np.where(idle, untouched, busy)
    return score


def _bit(need: Need) -> int:
    return 1 << min(need.gpus_min, BIT_MAX) if need.whole else 1


def _togetherness(sizes: Ints, own: int) -> Ints:
    """Return 75 where there are only tasks of this size, 50 where also, 25 if none."""
    only = sizes == own
    also = (sizes & own) != 0
    none = sizes == 0
    together: Ints = 75 * only + 50 * (also & ~only) + 25 * none
    return together
