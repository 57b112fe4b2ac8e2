"""Sampling: take the best of a few workers drawn at random.

The best of a few dozen is nearly as good as the best of all: that is why a scheduler
may look up a sample of the workers that could serve, and need not know every one.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from shoal.model.ids import NodeId
from shoal.policy.interface import ChooseBy
from shoal.policy.table.fitting_rows import FittingRows
from shoal.policy.table.grid import LOG_MIN, Grid
from shoal.policy.table.task_shapes import TaskShape

if TYPE_CHECKING:
    from collections.abc import Collection
    from random import Random

    from shoal.policy.interface import PlacementRequest
    from shoal.policy.ranking.ranking import RankedPolicy, Ranking
    from shoal.policy.table.worker_table import WorkerTable

CANDIDATES: Final = 64
"""As many as a look-up in the DHT brings at most."""

KEPT_MIN: Final = 8
ROWS_KEPT_MAX: Final = 1_000_000
"""Rows whose scores are kept, of all shapes; the shapes unused for longest go first."""

Score: TypeAlias = tuple[Any, ...]
"""The parts of a row's key, its node and its index, all in one to compare quickly."""


@final
class Sampled:
    """The best of a few fitting workers drawn at random, by another policy's key."""

    def __init__(self, inner: RankedPolicy, candidates: int = CANDIDATES) -> None:
        assert candidates > 0
        self.name = f"{inner.name}-{candidates}"
        self.candidates = candidates
        self._inner = inner
        self._kept: OrderedDict[TaskShape, _ScoredRows] = OrderedDict()

    def chooser(self, request: PlacementRequest, table: WorkerTable) -> ChooseBy:
        """Draw candidates for each task anew."""
        ranking = self._inner.ranking_for(request.shape.profile, request.count)
        scored = self._scored(request.shape, ranking, table)
        best = partial(scored.best, self.candidates, request.rng)
        return ChooseBy(scored.fitting.need, best)

    def _scored(
        self, shape: TaskShape, ranking: Ranking, table: WorkerTable
    ) -> _ScoredRows:
        kept, fitting = self._kept.get(shape), table.fitting(shape)
        if kept is None or kept.fitting is not fitting or kept.ranking is not ranking:
            kept = self._kept[shape] = _ScoredRows(fitting, ranking, table.grid)
        self._kept.move_to_end(shape)
        rows = max(1, len(table.grid.rows))
        while len(self._kept) > max(KEPT_MIN, ROWS_KEPT_MAX // rows):
            self._kept.popitem(last=False)
        return kept


@final
class _ScoredRows:
    """The rows that fit a shape, and the scores of those that were drawn."""

    def __init__(self, fitting: FittingRows, ranking: Ranking, grid: Grid) -> None:
        self.fitting = fitting
        self.ranking = ranking
        self._grid = grid
        self._forget()

    def best(
        self, candidates: int, rng: Random, skip: Collection[NodeId]
    ) -> int | None:
        """Return the best of the rows drawn, if any fits.

        Of equal rows the one with the smallest node id is the best.
        """
        self.fitting.catch_up()
        self._catch_up()
        scores, score_of = self._scores, self._score
        drawn = self.fitting.draw(candidates, rng, skip)
        if not drawn:
            return None
        index: int = min([scores[index] or score_of(index) for index in drawn])[-1]
        return index

    def _catch_up(self) -> None:
        """Forget the scores of rows that changed since."""
        grid, scores = self._grid, self._scores
        if len(scores) != len(grid.rows) or grid.now - self._seen > LOG_MIN:
            self._forget()
            return
        for index in grid.gains.since(self._gains_seen):
            scores[index] = None
        for index in grid.losses.since(self._losses_seen):
            scores[index] = None
        self._note_seen()

    def _forget(self) -> None:
        self._scores: list[Score | None] = [None] * len(self._grid.rows)
        self._note_seen()

    def _note_seen(self) -> None:
        grid = self._grid
        self._seen = grid.now
        self._gains_seen, self._losses_seen = grid.gains.end, grid.losses.end

    def _score(self, index: int) -> Score:
        row = self._grid.rows[index]
        assert row is not None
        score = (*self.ranking.key(self.fitting.need, row), row.node, index)
        self._scores[index] = score
        return score
