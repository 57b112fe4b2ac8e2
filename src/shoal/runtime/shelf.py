"""Which blobs a member may have, and reading them.

Who knows the name of a tree was told it, so it may have the tree and the files that it
names. A file by itself is given to nobody: its name could be guessed from its bytes.
What a task gave out by itself is the exception: it meant to.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, final

from shoal.blobs import trees
from shoal.blobs.hashing import size_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shoal.blobs.store import BlobStore
    from shoal.model.ids import BlobId

TREES_REMEMBERED_MAX: Final = 64
GIVEN_OUT_MAX: Final = 100_000


@final
class Shelf:
    """Looks things up in the store. Methods that read block: call them in a thread."""

    def __init__(self, store: BlobStore) -> None:
        self._store = store
        self._files: OrderedDict[BlobId, frozenset[BlobId]] = OrderedDict()
        self._given_out: OrderedDict[BlobId, None] = OrderedDict()

    def give_out(self, blob: BlobId) -> None:
        """Let all members have a blob who know its name."""
        self._given_out[blob] = None
        if len(self._given_out) > GIVEN_OUT_MAX:
            self._given_out.popitem(last=False)

    def tree(self, blob: BlobId) -> trees.Tree | str:
        """Return a tree that is here, or why it is none. Reads the disk."""
        size = size_of(blob)
        if size is None or size > trees.TREE_BYTES_MAX:
            return "it is too large for a tree"
        data = self._store.read(blob)
        if data is None:
            return "it is not held here"
        found = trees.decode(data)
        if isinstance(found, trees.Tree):
            self._files[blob] = frozenset(found.files())
            if len(self._files) > TREES_REMEMBERED_MAX:
                self._files.popitem(last=False)
        return found

    def pieces(
        self, blob: BlobId, under: BlobId, places: Iterable[tuple[int, int]]
    ) -> list[tuple[int, int, bytes]] | str:
        """Return pieces that a member asked for, or why it gets none of this blob."""
        if not self._store.has(blob):
            return "it is not held here"
        if not self._may_be_had(blob, under):
            return "it is not in a tree that was named"
        found: list[tuple[int, int, bytes]] = []
        for level, index in places:
            data = self._store.read_piece(blob, level, index)
            if data is None:
                return "it is not held here any more, or has no such piece"
            found.append((level, index, data))
        return found

    def _may_be_had(self, blob: BlobId, under: BlobId) -> bool:
        if blob in self._given_out:
            return True
        tree = under or blob
        files = self._files.get(tree)
        if files is None:
            if not self._store.has(tree) or isinstance(self.tree(tree), str):
                return False
            files = self._files[tree]
        return blob == tree or blob in files
