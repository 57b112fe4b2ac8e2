"""A model of the DHT: records in branches, and who is asked how often.

Each node of the DHT is as likely as any other to keep a key, so the load of the busiest
is that of the busiest key: it stores all of its records, and answers some questions for
it. What a node asks, and where it leaves its records, is decided as in a live node, by
`model.directory.branches`; only the routing to a key is not simulated, but counted:
about `log2(nodes)` messages for each question, which all nodes share alike.
"""

from __future__ import annotations

from collections import Counter
from math import log2
from typing import TYPE_CHECKING, Final, final

from shoal.model.directory import branches

if TYPE_CHECKING:
    from random import Random

    from shoal.model.ids import NodeId

ROOM: Final = 20
"""Records that a key has room for: whoever comes first."""

ASKED_S: Final = (0.05, 0.3)
"""For one question, which takes several steps through the DHT."""


@final
class BranchedDirectory:
    """The records of all keys, and how often each key was asked or written."""

    def __init__(self, rng: Random) -> None:
        self.visits: Counter[str] = Counter()  # by key and branch
        self.asked = 0  # questions and writes in all
        self._rng = rng
        self._records: dict[str, dict[NodeId, None]] = {}
        self._places: dict[NodeId, list[str]] = {}

    def reset(self) -> None:
        """Forget what was counted."""
        self.visits.clear()
        self.asked = 0

    def messages(self, nodes: int) -> float:
        """Return how many messages all questions and writes took."""
        return self.asked * 2 * max(1.0, log2(nodes))

    def provide(self, node: NodeId, keys: tuple[str, ...], nodes: int) -> None:
        """Let a node that came leave its records, where others find them.

        It takes the shoal for one of so many `nodes`.
        """
        path = branches.path(node)
        for key in branches.prioritised(keys):
            steps = branches.placing(branches.first_level(nodes))
            step: tuple[int, bool] | None = next(steps)
            while step is not None:
                level, writes = step
                place = key + path[:level]
                if writes:
                    self._write(place, node)
                else:
                    self._visit(place)
                step = branches.following(steps, self._others(place, node))

    def forget(self, node: NodeId) -> None:
        """Drop the records of a node that has been gone for a while."""
        for place in self._places.pop(node, ()):
            self._records[place].pop(node, None)

    def find(self, key: str, limit: int, nodes: int) -> tuple[list[NodeId], float]:
        """Return providers of a key, and how long it took to find them."""
        found: dict[NodeId, None] = {}
        steps = branches.searching(branches.first_level(nodes), limit)
        way = "".join(self._rng.choices("01", k=branches.LEVELS_MAX))
        took_s = 0.0
        level: int | None = next(steps)
        while level is not None:
            place = key + way[:level]
            self._visit(place)
            took_s += self._rng.uniform(*ASKED_S)
            records = self._records.get(place, {})
            found.update(records)
            is_full = len(records) >= branches.FULL
            level = branches.following(steps, (is_full, len(found)))
        some = list(found)
        return self._rng.sample(some, min(limit, len(some))), took_s

    def _others(self, place: str, node: NodeId) -> bool:
        """Whether a key is full of records of others."""
        records = self._records.get(place, {})
        return len(records) - (node in records) >= branches.FULL

    def _write(self, place: str, node: NodeId) -> None:
        self._visit(place)
        records = self._records.setdefault(place, {})
        if len(records) < ROOM:
            records[node] = None
            self._places.setdefault(node, []).append(place)

    def _visit(self, place: str) -> None:
        self.visits[place] += 1
        self.asked += 1
