"""The workers that fit a shape, best first, repaired only where something changed.

A shortlist is a sorted run of all fitting rows, made with numpy when the shape is
first seen, and a heap of the rows that were scored anew since. Rows that changed are
scored when somebody next asks, so a change costs nothing for shapes nobody asks for.
An entry older than the last change of its row is void, and dropped when it comes up.
The answers are those of a full scan, at a hundredth of its price.
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, final

import numpy as np

from shoal.model.ids import NodeId
from shoal.policy.filters import mask
from shoal.policy.grid import Grid
from shoal.policy.rows import Amount, Room
from shoal.policy.shapes import Kinds, Need, Shape

if TYPE_CHECKING:
    from collections.abc import Collection

SHORTLISTS_MAX: Final = 64
"""Shortlists that a table keeps; the one unused for longest is forgotten first."""

REPAIRS_SHARE: Final = 4
"""When more than one row in so many changed, sorting all anew is quicker."""

REPAIRS_MIN: Final = 64

Key: TypeAlias = tuple[Amount, ...]


class Ranking(Protocol):
    """Says which of the workers that fit a task suits it best."""

    name: str

    def key(self, need: Need, room: Room) -> Key:
        """Return numbers to compare workers by, in order; the smallest wins."""
        ...


Entry: TypeAlias = tuple[Key, NodeId, int, int]
"""Key, node, row, and how many changes there had been when the row was scored."""


@final
class Shortlist:
    """The rows of a grid that fit one need, by one ranking."""

    def __init__(self, need: Need, ranking: Ranking, grid: Grid) -> None:
        self.need = need
        self._ranking = ranking
        self._grid = grid
        self._sort()

    def best(self, skip: Collection[NodeId] = ()) -> int | None:
        """Return the index of the best row whose node is not in `skip`, if any.

        Of equal rows the one with the smallest node id is the best.
        """
        self._repair()
        found = self._top()
        aside: list[Entry] = []
        while found is not None and found[1] in skip:
            aside.append(found)
            self._drop(found)
            found = self._top()
        for entry in aside:
            heappush(self._heap, entry)
        return None if found is None else found[2]

    def _sort(self) -> None:
        grid = self._grid
        order = grid.order()
        rows = order[mask(self.need, grid)[order]]
        key = self._ranking.key(self.need, grid.columns)
        columns = [np.broadcast_to(part, grid.columns.live.shape)[rows] for part in key]
        # The sort is stable and the rows are in the order of their node ids.
        ranks = np.lexsort(columns[::-1])
        self._run: list[int] = rows[ranks].tolist()
        self._run_keys: list[list[int | float]] = [c[ranks].tolist() for c in columns]
        self._next = 0
        self._sorted_at = self._seen = grid.now
        self._heap: list[Entry] = []

    def _repair(self) -> None:
        """Score all rows anew that changed since this was last done."""
        grid = self._grid
        now, behind = grid.now, grid.now - self._seen
        if behind == 0:
            return
        limit = max(REPAIRS_MIN, len(grid.rows) // REPAIRS_SHARE)
        if self._seen < grid.log_start or behind > limit or len(self._heap) > 2 * limit:
            self._sort()
            return
        need, key, heap, rows = self.need, self._ranking.key, self._heap, grid.rows
        for index in dict.fromkeys(grid.log[self._seen - grid.log_start :]):
            row = rows[index]
            if row is not None and row.fits(need):
                heappush(heap, (key(need, row), row.node, index, now))
        self._seen = now

    def _top(self) -> Entry | None:
        """Return the best entry that is not void, and drop the void ones before it."""
        changed, heap = self._grid.changed, self._heap
        while heap and changed[heap[0][2]] > heap[0][3]:
            heappop(heap)
        run, sorted_at = self._run, self._sorted_at
        while self._next < len(run) and changed[run[self._next]] > sorted_at:
            self._next += 1
        if self._next == len(run):
            return heap[0] if heap else None
        first = self._first_of_run()
        return heap[0] if heap and heap[0] < first else first

    def _first_of_run(self) -> Entry:
        place = self._next
        index = self._run[place]
        row = self._grid.rows[index]
        assert row is not None
        key = tuple([column[place] for column in self._run_keys])
        return key, row.node, index, self._sorted_at

    def _drop(self, entry: Entry) -> None:
        if self._heap and self._heap[0] is entry:
            heappop(self._heap)
        else:
            self._next += 1


@final
class Shortlists:
    """The shortlists of one grid that were used last."""

    def __init__(self, grid: Grid, kinds: Kinds) -> None:
        self._grid = grid
        self._kinds = kinds
        self._kept: OrderedDict[tuple[Shape, Ranking], Shortlist] = OrderedDict()

    def get(self, shape: Shape, ranking: Ranking) -> Shortlist:
        """Return the shortlist of this shape and ranking, made anew if need be."""
        key = (shape, ranking)
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
            return found
        if len(self._kept) == SHORTLISTS_MAX:
            self._kept.popitem(last=False)
        found = self._kept[key] = Shortlist(
            Need(shape, self._kinds), ranking, self._grid
        )
        return found
