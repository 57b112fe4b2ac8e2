"""Remember which peers hold a tree, so that others can fetch it from them.

A peer that has fetched a tree tells the node it got it from. That node names the newest
`HOLDERS_MAX` holders to the next peer that asks. All of this is hints, for at most
`TREES_MAX` trees.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, final

from shoal.protocol.limits import HOLDERS_MAX
from shoal.protocol.messages import PeerAddress

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.model.ids import BlobId, NodeId

TREES_MAX: Final = 1_024


@final
class TreeHolders:
    """Bounded hints about which peers hold which trees."""

    def __init__(self, where: Callable[[NodeId], str]) -> None:
        """Name only holders for whom `where` returns an address."""
        self._where = where
        self._known: OrderedDict[BlobId, dict[NodeId, None]] = OrderedDict()

    def note(self, tree: BlobId, peer: NodeId) -> None:
        """Note that a peer holds a whole tree; forget the oldest entries."""
        known = self._known.setdefault(tree, {})
        self._known.move_to_end(tree)
        known.pop(peer, None)
        known[peer] = None
        if len(known) > HOLDERS_MAX:
            del known[next(iter(known))]
        if len(self._known) > TREES_MAX:
            self._known.popitem(last=False)

    def besides(self, peer: NodeId, tree: BlobId) -> tuple[PeerAddress, ...]:
        """Return other reachable holders of the tree that `peer` asks for."""
        others = (node for node in self._known.get(tree, ()) if node != peer)
        found = ((node, self._where(node)) for node in others)
        return tuple(PeerAddress(node, (where,)) for node, where in found if where)
