"""Workers that have the code of a task already are preferred among equals.

The first number that a ranking compares by is what it is about: load, waste, distance.
Only of workers that are as good by it does a warm one win, whatever comes after. So
no worker gets a task that it would not have got on a day when all were alike.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Final, TypeAlias, final

from shoal.model.caches import MARKS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from shoal.model.ids import NodeId
    from shoal.policy.rows import Row
    from shoal.policy.shapes import Need
    from shoal.policy.shortlist import Key, Ranking

LOOKED_AT_MAX: Final = 16
"""Warm workers that are compared for one task: where there are more, one is no find."""

Best: TypeAlias = "Callable[[Collection[NodeId]], int | None]"


@final
class WarmRows:
    """The rows of a table by what is cached on their workers."""

    def __init__(self) -> None:
        self._rows: dict[str, list[tuple[NodeId, int]]] = {}  # each by node id

    def put(self, node: NodeId, index: int, marks: Sequence[str]) -> None:
        """Take note of a row that was not there."""
        for mark in dict.fromkeys(marks[:MARKS_MAX]):
            insort(self._rows.setdefault(mark, []), (node, index))

    def remove(self, node: NodeId, index: int, marks: Sequence[str]) -> None:
        """Forget a row that was there with these marks."""
        for mark in dict.fromkeys(marks[:MARKS_MAX]):
            rows = self._rows[mark]
            del rows[bisect_left(rows, (node, index))]
            if not rows:
                del self._rows[mark]

    def count(self, mark: str) -> int:
        """Return how many workers have this mark."""
        return len(self._rows.get(mark, ()))

    def of(self, marks: Collection[str]) -> list[int]:
        """Return some rows that have any of these marks, the same for everybody."""
        found = [
            index
            for mark in marks
            for _, index in self._rows.get(mark, ())[:LOOKED_AT_MAX]
        ]
        return list(dict.fromkeys(found))


@final
class WarmFirst:
    """Chooses as a ranking does, and among equals those with the most cached.

    It looks on only as long as it finds some, so that many tasks cost little more.
    """

    def __init__(
        self,
        best: Best,
        ranking: Ranking,
        need: Need,
        rows: Sequence[Row | None],
        warm: list[int],
        marks: Collection[str],
    ) -> None:
        self._best = best
        self._ranking = ranking
        self._need = need
        self._rows = rows
        self._warm = warm
        self._marks = frozenset(marks)

    def __call__(self, skip: Collection[NodeId]) -> int | None:
        """Return the index of the row to take, if any fits."""
        best = self._best(skip)
        row = None if best is None else self._rows[best]
        if best is None or row is None or not self._warm:
            return best
        most = self._cached(row)
        if most == len(self._marks):
            return best
        need, key_of = self._need, self._ranking.key
        limit = key_of(need, row)[0]
        found: list[tuple[int, Key, NodeId, int]] = []
        for index in self._warm:
            other = self._rows[index]
            if other is None or other.node in skip or not other.fits(need):
                continue
            key, cached = key_of(need, other), self._cached(other)
            if key[0] <= limit and cached > most:
                found.append((-cached, key, other.node, index))
        if not found:
            self._warm = []
            return best
        return min(found)[3]

    def _cached(self, row: Row) -> int:
        return len(self._marks.intersection(row.warm))
