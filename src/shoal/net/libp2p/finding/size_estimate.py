"""Estimate the size of a shoal from the density of ids around one node.

Ids are spread evenly, so if the twentieth nearest of all nodes is at one hundredth of
the greatest distance, there are about two thousand. A node knows those nearest to it
well, because Kademlia makes it look for them.
"""

from __future__ import annotations

import hashlib
import heapq
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shoal.model.ids import NodeId

NEAREST: Final = 20
_SPACE: Final = 1 << 256


def estimated_size(node: NodeId, others: Iterable[NodeId]) -> int:
    """Return the likely number of nodes, given `others` that `node` knows of."""
    own = _place(node)
    distances = {own ^ _place(other) for other in others if other != node}
    if len(distances) < NEAREST:
        return len(distances) + 1  # In a small shoal everybody knows everybody.
    farthest = heapq.nsmallest(NEAREST, distances)[-1]
    dense = round((NEAREST - 1) * _SPACE / farthest) + 1
    return max(dense, len(distances) + 1)


def _place(node: NodeId) -> int:
    return int.from_bytes(hashlib.sha256(node.encode()).digest(), "big")
