"""Sampling: take the best of a few workers drawn at random.

The best of a few dozen is nearly as good as the best of all: that is why a scheduler
may look up a sample of the workers that could serve, and need not know every one.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, final

from shoal.model.ids import NodeId
from shoal.policy.filters import mask
from shoal.policy.interface import ChooseBy
from shoal.policy.table.grid import Grid
from shoal.policy.table.task_shapes import Need, TaskShape

if TYPE_CHECKING:
    from collections.abc import Collection
    from random import Random

    from shoal.policy.interface import PlacementRequest
    from shoal.policy.ranking.ranking import RankedPolicy, Ranking
    from shoal.policy.table.worker_table import WorkerTable

CANDIDATES: Final = 64
"""As many as a look-up in the DHT brings at most."""

SHAPES_MAX: Final = 4_096
"""Shapes of tasks whose needs are kept."""

DRAWS_PER_CANDIDATE: Final = 4
"""Draws for each candidate before it is quicker to ask all workers who fits."""


@final
class Sampled:
    """The best of a few fitting workers drawn at random, by another policy's key."""

    def __init__(self, inner: RankedPolicy, candidates: int = CANDIDATES) -> None:
        assert candidates > 0
        self.name = f"{inner.name}-{candidates}"
        self.candidates = candidates
        self._inner = inner
        # Rankings remember what they worked out for a need.
        self._needs: dict[TaskShape, Need] = {}

    def chooser(self, request: PlacementRequest, table: WorkerTable) -> ChooseBy:
        """Draw candidates for each task anew."""
        need = self._known(table.need(request.shape))
        ranking = self._inner.ranking_for(request.shape.profile, request.count)
        return ChooseBy(
            need, partial(self._best, ranking, need, table.grid, request.rng)
        )

    def _known(self, need: Need) -> Need:
        """Return the first need of the same shape that came for the same table."""
        first = self._needs.get(need.shape)
        if first is not None and first.kinds is need.kinds:
            return first
        if len(self._needs) >= SHAPES_MAX:
            self._needs.clear()
        self._needs[need.shape] = need
        return need

    def _best(
        self,
        ranking: Ranking,
        need: Need,
        grid: Grid,
        rng: Random,
        skip: Collection[NodeId],
    ) -> int | None:
        """Return the best of the rows drawn, if any fits.

        Of equal rows the one with the smallest node id is the best.
        """
        need.learn_kinds()
        best: tuple[tuple[object, ...], NodeId, int] | None = None
        for index in self._drawn(need, grid, rng, skip):
            row = grid.rows[index]
            assert row is not None
            entry = (ranking.key(need, row), row.node, index)
            best = entry if best is None else min(best, entry)
        return None if best is None else best[2]

    def _drawn(
        self, need: Need, grid: Grid, rng: Random, skip: Collection[NodeId]
    ) -> list[int]:
        """Return different rows that fit, each with the same chance."""
        order = grid.order()
        drawn: dict[int, bool] = {}
        found: list[int] = []
        for _ in range(DRAWS_PER_CANDIDATE * self.candidates if len(order) else 0):
            index = int(order[rng.randrange(len(order))])
            if index in drawn:
                continue
            row = grid.rows[index]
            drawn[index] = fits = (
                row is not None and row.node not in skip and row.fits(need)
            )
            if fits:
                found.append(index)
                if len(found) == self.candidates:
                    return found
        fitting: list[int] = order[mask(need, grid)[order]].tolist()
        left = [i for i in fitting if (row := grid.rows[i]) and row.node not in skip]
        return rng.sample(left, min(self.candidates, len(left)))
