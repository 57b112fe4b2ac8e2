"""Track which peers hold a tree, so that later fetches can use them.

A peer that has fetched a tree tells its source, which passes the newest `HOLDERS_MAX`
holders on to the next peer that asks. All of this is hints, for at most `TREES_MAX`
trees.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, final

from shoal.protocol.limits import HOLDERS_MAX
from shoal.protocol.messages import PeerAddress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from shoal.model.ids import BlobId, NodeId
    from shoal.protocol.messages import BlobHeld

TREES_MAX: Final = 1_024


@final
class _Fetching:
    """A tree being fetched, and the files requested so far."""

    def __init__(self, sources: Iterable[NodeId]) -> None:
        self.sources = frozenset(sources)
        self.hints: dict[NodeId, None] = {}
        self.blobs: dict[BlobId, None] = {}


@final
class TreeHolders:
    """Bounded hints about which peers hold which trees."""

    def __init__(self, where: Callable[[NodeId], tuple[str, ...]]) -> None:
        self._where = where
        self._known: OrderedDict[BlobId, dict[NodeId, None]] = OrderedDict()
        self._fetching: dict[BlobId, _Fetching] = {}

    # When serving trees.

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
        return tuple(PeerAddress(node, where) for node, where in found if where)

    # When fetching trees.

    def fetching(self, tree: BlobId, sources: Iterable[NodeId]) -> None:
        """Begin a fetch: accept hints about this tree from `sources`."""
        self._fetching.setdefault(tree, _Fetching(sources))

    def wants(self, tree: BlobId, blob: BlobId) -> None:
        """Note that a file of a tree was requested."""
        if (fetching := self._fetching.get(tree)) is not None:
            fetching.blobs[blob] = None

    def hints(self, tree: BlobId) -> tuple[NodeId, ...]:
        """Return the other peers reported to hold a tree."""
        fetching = self._fetching.get(tree)
        return tuple(fetching.hints) if fetching is not None else ()

    def told(
        self, peer: NodeId, held: BlobHeld
    ) -> dict[PeerAddress, tuple[BlobId, ...]]:
        """Return newly reported holders, with the blobs to ask each for."""
        fetching = self._fetching.get(held.blob)
        if fetching is None or peer not in fetching.sources:
            return {}
        new = [
            holder
            for holder in held.holders
            if holder.node not in fetching.hints and holder.node != peer
        ]
        fetching.hints.update((holder.node, None) for holder in new)
        return {holder: tuple(fetching.blobs) for holder in new}

    def fetched(self, tree: BlobId) -> None:
        """End a fetch, successful or not."""
        self._fetching.pop(tree, None)
