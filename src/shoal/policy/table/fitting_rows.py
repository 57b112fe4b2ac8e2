"""The rows that fit one task shape, kept for drawing some of them at random.

They are in the order of their node ids, so that what is drawn depends on the table and
on the chance alone, and not on how the table came about. Rows that changed are checked
at the next question: a draw costs the same however many workers there are.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, final

import numpy as np

from shoal.policy.filters import mask
from shoal.policy.table.task_shapes import Kinds, Need, TaskShape

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from random import Random

    from shoal.model.ids import NodeId
    from shoal.policy.table.grid import Grid

ANEW_MIN: Final = 64
ANEW_SHARE: Final = 4
"""When more than one row in this many changed, all are checked anew."""

KEPT_MIN: Final = 8
ROWS_KEPT_MAX: Final = 1_000_000
"""Rows of all shapes of a table; the shapes unused for longest are forgotten first."""

MANY: Final = 16
DRAWS_MORE: Final = 16
"""So many are drawn together, and so many more than should be enough."""

CROWD: Final = 4
"""With so many rows for each that is wanted, it is quicker to draw than to list."""


@final
class FittingRows:
    """Knows which rows of a grid fit one need, and draws from them."""

    def __init__(self, need: Need, grid: Grid) -> None:
        self.need = need
        self._grid = grid
        self._check_all()

    def catch_up(self) -> Iterable[int]:
        """Check the rows that changed since the last time, and return them."""
        grid, need = self._grid, self.need
        behind = grid.now - self._seen
        if behind == 0:
            return ()
        anew = behind > max(ANEW_MIN, len(grid.rows) // ANEW_SHARE)
        if anew or grid.order() is not self._order:
            self._check_all()
            return range(len(grid.rows))
        if len(need.sizes) <= len(need.kinds.devices):
            need.learn_kinds()
        gained = grid.gains.since(self._gains_seen)
        lost = grid.losses.since(self._losses_seen)
        self._note_seen()
        rows, fits, ranks = grid.rows, self._fits_each, self._ranks
        # What fits may only stop to fit where room was lost, and the other way round.
        for index in gained:
            if not fits[index] and (row := rows[index]) and row.fits(need):
                fits[index] = True
                insort(ranks, self._rank_of[index])
        for index in lost:
            if fits[index] and not ((row := rows[index]) and row.fits(need)):
                fits[index] = False
                del ranks[bisect_left(ranks, self._rank_of[index])]
        return gained + lost

    def draw(self, count: int, rng: Random, skip: Collection[NodeId] = ()) -> list[int]:
        """Draw up to `count` different rows whose nodes are not in `skip`.

        The caller has caught up. Each row has the same chance.
        """
        ranks, by_rank, rows = self._ranks, self._by_rank, self._grid.rows
        if len(ranks) <= CROWD * (count + len(skip)):
            left = [by_rank[rank] for rank in ranks]
            if skip:
                left = [i for i in left if (row := rows[i]) and row.node not in skip]
            return _sample(left, count, rng)
        if count >= MANY and CROWD * len(ranks) >= len(by_rank):
            return self._draw_many(count, rng, skip)
        found: dict[int, None] = {}
        random, size = rng.random, len(ranks)
        while len(found) < count:
            draws = range(count - len(found))  # Some are drawn twice.
            drawn = [by_rank[ranks[int(random() * size)]] for _ in draws]
            if skip:
                drawn = [i for i in drawn if (row := rows[i]) and row.node not in skip]
            found.update(dict.fromkeys(drawn))
        return list(found)

    def _draw_many(
        self, count: int, rng: Random, skip: Collection[NodeId]
    ) -> list[int]:
        """Draw from all rows, as columns of numbers, until enough of them fit."""
        order, rows = self._order, self._grid.rows
        size = len(order)
        draws = DRAWS_MORE + count * size // len(self._ranks)
        found: dict[int, None] = {}
        while len(found) < count:
            numbers = np.frombuffer(rng.randbytes(4 * draws), "<u4").astype(np.int64)
            drawn = order[numbers * size >> 32]
            fitting: list[int] = drawn[self._fits[drawn]].tolist()
            if skip:
                fitting = [i for i in fitting if (r := rows[i]) and r.node not in skip]
            found.update(dict.fromkeys(fitting))
        return list(found)[:count]

    def _check_all(self) -> None:
        grid = self._grid
        self.need.learn_kinds()
        self._order = grid.order()
        self._by_rank: list[int] = self._order.tolist()
        self._rank_of = [0] * len(grid.rows)
        for rank, index in enumerate(self._by_rank):
            self._rank_of[index] = rank
        # The same bytes twice: numbers one by one, and a column of truths.
        self._fits_each = bytearray(mask(self.need, grid)[: len(grid.rows)].tobytes())
        self._fits = np.frombuffer(self._fits_each, np.bool_)
        self._ranks: list[int] = np.flatnonzero(self._fits[self._order]).tolist()
        self._note_seen()

    def _note_seen(self) -> None:
        grid = self._grid
        self._seen = grid.now
        self._gains_seen, self._losses_seen = grid.gains.end, grid.losses.end


def _sample(rows: list[int], count: int, rng: Random) -> list[int]:
    """Draw up to `count` different rows from a list, which is reordered."""
    size, random = len(rows), rng.random
    if size <= count:
        return rows
    for place in range(count):  # `Random.sample` takes three times as long.
        other = place + int(random() * (size - place))
        rows[place], rows[other] = rows[other], rows[place]
    return rows[:count]


@final
class FittingTables:
    """The fitting rows of the shapes of one grid that were used last."""

    def __init__(self, grid: Grid, kinds: Kinds) -> None:
        self._grid = grid
        self._kinds = kinds
        self._kept: OrderedDict[TaskShape, FittingRows] = OrderedDict()

    def get(self, shape: TaskShape) -> FittingRows:
        """Return the rows that fit a shape, of which some may have changed since."""
        found = self._kept.get(shape)
        if found is not None:
            self._kept.move_to_end(shape)
            return found
        rows = max(1, len(self._grid.rows))
        while len(self._kept) >= max(KEPT_MIN, ROWS_KEPT_MAX // rows):
            self._kept.popitem(last=False)
        need = Need(shape, self._kinds)
        found = self._kept[shape] = FittingRows(need, self._grid)
        return found
