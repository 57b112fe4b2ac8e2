"""Choose among a few workers drawn by chance, as one who cannot know all of them must.

The best of a few dozen is nearly as good as the best of all: that is why a scheduler
may look up a sample of the workers that could serve, and need not know every one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias, final

from shoal.model.ids import NodeId
from shoal.model.resources import Profile
from shoal.policy.filters import mask
from shoal.policy.forage import LearnedForage
from shoal.policy.fragmentation import LearnedFgd
from shoal.policy.grid import Grid
from shoal.policy.shapes import Need, Shape
from shoal.policy.shortlist import Ranking

if TYPE_CHECKING:
    from collections.abc import Collection
    from random import Random

CANDIDATES: Final = 64
"""As many as a look-up in the DHT brings at most."""

SHAPES_MAX: Final = 4_096
"""Shapes of tasks whose needs are kept."""

DRAWS_PER_CANDIDATE: Final = 4
"""Draws for each candidate before it is quicker to ask all workers who fits."""

Inner: TypeAlias = Ranking | LearnedFgd | LearnedForage


@final
class Sampled:
    """The best of a few workers that fit, drawn by chance; by another policy's key."""

    def __init__(self, inner: Inner, candidates: int = CANDIDATES) -> None:
        assert candidates > 0
        self.name = f"{inner.name}-{candidates}"
        self.candidates = candidates
        self._inner = inner
        self._needs: dict[Shape, Need] = {}  # rankings remember what they worked out

    def known(self, need: Need) -> Need:
        """Return the first need of the same shape that came for the same table."""
        first = self._needs.get(need.shape)
        if first is not None and first.kinds is need.kinds:
            return first
        if len(self._needs) >= SHAPES_MAX:
            self._needs.clear()
        self._needs[need.shape] = need
        return need

    def ranking(self, profile: Profile, count: int) -> Ranking:
        """Return the ranking to compare candidates by; learn from what is asked."""
        inner = self._inner
        if isinstance(inner, LearnedFgd | LearnedForage):
            return inner.see(profile, count)
        return inner

    def choose(
        self,
        ranking: Ranking,
        need: Need,
        grid: Grid,
        rng: Random,
        skip: Collection[NodeId],
    ) -> int | None:
        """Return the best row among those drawn, if any fits.

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
