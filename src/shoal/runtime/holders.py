"""Who else holds a tree: told by those who fetched it, to those who fetch it next."""

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
    """A tree on its way here, and the files of it that were asked for."""

    def __init__(self, sources: Iterable[NodeId]) -> None:
        self.sources = frozenset(sources)
        self.hints: dict[NodeId, None] = {}
        self.blobs: dict[BlobId, None] = {}


@final
class Holders:
    """Notes about trees; all of it is hints, and bounded."""

    def __init__(self, where: Callable[[NodeId], tuple[str, ...]]) -> None:
        self._where = where
        self._known: OrderedDict[BlobId, dict[NodeId, None]] = OrderedDict()
        self._fetching: dict[BlobId, _Fetching] = {}

    # As one who has trees.

    def note(self, tree: BlobId, peer: NodeId) -> None:
        """Remember that a peer has all of a tree; the latest are remembered."""
        known = self._known.setdefault(tree, {})
        self._known.move_to_end(tree)
        known.pop(peer, None)
        known[peer] = None
        if len(known) > HOLDERS_MAX:
            del known[next(iter(known))]
        if len(self._known) > TREES_MAX:
            self._known.popitem(last=False)

    def besides(self, peer: NodeId, tree: BlobId) -> tuple[PeerAddress, ...]:
        """Return who else has a tree that a peer asks for, and can be reached."""
        others = (node for node in self._known.get(tree, ()) if node != peer)
        found = ((node, self._where(node)) for node in others)
        return tuple(PeerAddress(node, where) for node, where in found if where)

    # As one who fetches them.

    def fetching(self, tree: BlobId, sources: Iterable[NodeId]) -> None:
        """Begin to believe these peers about who else has a tree."""
        self._fetching.setdefault(tree, _Fetching(sources))

    def wants(self, tree: BlobId, blob: BlobId) -> None:
        """Note that a file of a tree is asked for."""
        if (fetching := self._fetching.get(tree)) is not None:
            fetching.blobs[blob] = None

    def hints(self, tree: BlobId) -> tuple[NodeId, ...]:
        """Return who else is said to have a tree."""
        fetching = self._fetching.get(tree)
        return tuple(fetching.hints) if fetching is not None else ()

    def told(
        self, peer: NodeId, held: BlobHeld
    ) -> dict[PeerAddress, tuple[BlobId, ...]]:
        """Return new holders, and for which blobs they can be asked."""
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
        """Forget a tree that is here, or cannot be had."""
        self._fetching.pop(tree, None)
