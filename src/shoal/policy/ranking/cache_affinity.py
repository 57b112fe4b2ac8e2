"""Cache affinity: among equal workers, prefer one that has the code already.

The first number of a ranking's key is what the ranking is about: load, waste, distance,
unless its `concern` says otherwise. A warm worker wins only among workers that are no
worse in that, before all else is compared. So warmth costs nothing that a policy cares
about.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Final, final

from shoal.model.caches import MARKS_MAX

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from shoal.model.ids import NodeId
    from shoal.policy.ranking.ranking import Ranking
    from shoal.policy.table.rows import WorkerRow
    from shoal.policy.table.shortlist import Key, Shortlist

LOOKED_AT_MAX: Final = 16
"""Warm workers that are compared for one task: where there are more, one is no find."""


@final
class WarmRows:
    """The rows of a table by what is cached on their workers."""

    def __init__(self) -> None:
        self._rows: dict[str, list[tuple[NodeId, int]]] = {}  # each by node id

    def put(self, node: NodeId, index: int, marks: Sequence[str]) -> None:
        """Add a row with these marks."""
        for mark in dict.fromkeys(marks[:MARKS_MAX]):
            insort(self._rows.setdefault(mark, []), (node, index))

    def remove(self, node: NodeId, index: int, marks: Sequence[str]) -> None:
        """Remove a row that has these marks."""
        for mark in dict.fromkeys(marks[:MARKS_MAX]):
            rows = self._rows[mark]
            del rows[bisect_left(rows, (node, index))]
            if not rows:
                del self._rows[mark]

    def count(self, mark: str) -> int:
        """Return how many workers have this mark."""
        return len(self._rows.get(mark, ()))

    def of(self, marks: Collection[str]) -> list[int]:
        """Return some rows with any of these marks, always the same ones."""
        found = [
            index
            for mark in marks
            for _, index in self._rows.get(mark, ())[:LOOKED_AT_MAX]
        ]
        return list(dict.fromkeys(found))


@final
class WarmFirst:
    """Chooses as a ranking does, and among equals the workers with most cached.

    It looks on only as long as it finds some, so that many tasks cost little more.
    """

    def __init__(
        self,
        shortlist: Shortlist,
        ranking: Ranking,
        rows: Sequence[WorkerRow | None],
        warm: list[int],
        marks: Collection[str],
    ) -> None:
        self.need = shortlist.need
        self._shortlist = shortlist
        self._ranking = ranking
        self._rows = rows
        self._warm = warm
        self._marks = frozenset(marks)

    def best(self, skip: Collection[NodeId]) -> int | None:
        """Return the index of the row to take, if any fits."""
        best = self._shortlist.best(skip)
        row = None if best is None else self._rows[best]
        if best is None or row is None or not self._warm:
            return best
        most = self._cached(row)
        if most == len(self._marks):
            return best
        need, key_of, concern = self.need, self._ranking.key, self._ranking.concern
        limit = concern(key_of(need, row))
        found: list[tuple[int, Key, NodeId, int]] = []
        for index in self._warm:
            other = self._rows[index]
            if other is None or other.node in skip or not other.fits(need):
                continue
            key, cached = key_of(need, other), self._cached(other)
            if concern(key) <= limit and cached > most:
                found.append((-cached, key, other.node, index))
        if not found:
            self._warm = []
            return best
        return min(found)[3]

    def _cached(self, row: WorkerRow) -> int:
        return len(self._marks.intersection(row.warm))
