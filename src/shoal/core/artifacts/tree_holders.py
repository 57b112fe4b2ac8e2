"""Remember which peers hold a tree, so that others can fetch it from them.

A peer that has fetched a tree tells the node it got it from. Of the newest `KEPT_MAX`
holders that node names the `HOLDERS_MAX` nearest to the next peer that asks. All of
this is hints, for at most `TREES_MAX` trees.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, final

from shoal.core.proximity.network_map import TALK_BYTES, unknown
from shoal.protocol.limits import HOLDERS_MAX
from shoal.protocol.messages import PeerAddress

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.core.proximity.network_map import Paths
    from shoal.model.ids import BlobId, NodeId

TREES_MAX: Final = 1_024
KEPT_MAX: Final = 64
"""Holders of one tree."""


@final
class TreeHolders:
    """Bounded hints about which peers hold which trees."""

    def __init__(self, where: Callable[[NodeId], str], paths: Paths = unknown) -> None:
        """Name only holders for whom `where` returns an address."""
        self._where = where
        self._paths = paths
        self._known: OrderedDict[BlobId, dict[NodeId, None]] = OrderedDict()

    def note(self, tree: BlobId, peer: NodeId) -> None:
        """Note that a peer holds a whole tree; forget the oldest entries."""
        known = self._known.setdefault(tree, {})
        self._known.move_to_end(tree)
        known.pop(peer, None)
        known[peer] = None
        if len(known) > KEPT_MAX:
            del known[next(iter(known))]
        if len(self._known) > TREES_MAX:
            self._known.popitem(last=False)

    def besides(self, peer: NodeId, tree: BlobId) -> tuple[PeerAddress, ...]:
        """Return other reachable holders of the tree that `peer` asks for."""
        newest = reversed(self._known.get(tree, {}))
        found = [
            (node, where)
            for node in newest
            if node != peer and (where := self._where(node))
        ]
        if len(found) > HOLDERS_MAX:
            found.sort(key=lambda each: self._distance(each[0], peer))
        return tuple(PeerAddress(node, (at,)) for node, at in found[:HOLDERS_MAX])

    def _distance(self, node: NodeId, peer: NodeId) -> float:
        path = self._paths(node, peer)
        return math.inf if path is None else path.transfer_s(TALK_BYTES)
