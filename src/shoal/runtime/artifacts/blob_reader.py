"""Read trees and pieces of blobs from the store. All methods block: use a thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from shoal.blobs import trees
from shoal.core.artifacts.events import PiecesOf
from shoal.protocol.blob_hashing import size_of

if TYPE_CHECKING:
    from shoal.blobs.store import BlobStore
    from shoal.model.ids import BlobId
    from shoal.protocol.blobs import PieceWanted


@final
class BlobReader:
    """Verified reads: what a disk has damaged is not found."""

    def __init__(self, store: BlobStore) -> None:
        self._store = store

    def tree(self, blob: BlobId) -> trees.Tree | str:
        """Return a stored tree, or why there is none."""
        size = size_of(blob)
        if size is None or size > trees.TREE_BYTES_MAX:
            return "it is too large for a tree"
        data = self._store.read(blob)
        return "it is not held here" if data is None else trees.decode(data)

    def pieces(self, wanted: PieceWanted) -> PiecesOf:
        """Return the requested pieces of a blob, or why there are none."""
        found: list[tuple[int, int, bytes]] = []
        for level, index in wanted.pieces:
            data = self._store.read_piece(wanted.blob, level, index)
            if data is None:
                return PiecesOf(wanted.blob, reason=self._why_not(wanted.blob))
            found.append((level, index, data))
        return PiecesOf(wanted.blob, tuple(found))

    def _why_not(self, blob: BlobId) -> str:
        is_here = self._store.has(blob)
        return "it has no such piece" if is_here else "it is not held here"
