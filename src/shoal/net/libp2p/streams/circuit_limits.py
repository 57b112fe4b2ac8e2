"""Limits on circuits at a gate, so that one member cannot take them all.

The library counts the circuits that lead to a member. Those that come from one it does
not count, so one member could take all that lead to another, or open some to everybody.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeVar, final

if TYPE_CHECKING:
    from shoal.model.ids import NodeId
    from shoal.net.libp2p.settings import RelayRoom

T = TypeVar("T")


@final
class CircuitLimits:
    """Counts circuits by where they come from, and by pairs."""

    def __init__(self, room: RelayRoom) -> None:
        self._room = room
        self._sources: Counter[NodeId] = Counter()
        self._pairs: Counter[tuple[NodeId, NodeId]] = Counter()

    def __len__(self) -> int:
        return self._sources.total()

    def enter(self, source: NodeId, target: NodeId) -> str:
        """Count a circuit in; or say why it is one too many."""
        if self._pairs[source, target] >= self._room.circuits_between:
            return f"{self._room.circuits_between} circuits between two are the most"
        if self._sources[source] >= self._room.circuits_from:
            return f"{self._room.circuits_from} circuits of one member are the most"
        self._sources[source] += 1
        self._pairs[source, target] += 1
        return ""

    def leave(self, source: NodeId, target: NodeId) -> None:
        """Count a circuit out that was let in before."""
        _count_out(self._sources, source)
        _count_out(self._pairs, (source, target))


def _count_out(counts: Counter[T], key: T) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]  # Else it would remember every peer forever.
