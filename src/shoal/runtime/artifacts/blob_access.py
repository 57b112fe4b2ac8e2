"""Decide which blobs a member may read, and read them.

Tree names are salted, so a member that knows one was told it: it may read the tree and
its files. A file by itself is served to nobody, because its name is a hash of its
bytes and can be guessed. The exception is a blob that a task published on purpose.
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
class BlobAccess:
    """Checked reads from the store. `tree` and `pieces` block: use a thread."""

    def __init__(self, store: BlobStore) -> None:
        self._store = store
        self._files: OrderedDict[BlobId, frozenset[BlobId]] = OrderedDict()
        self._given_out: OrderedDict[BlobId, None] = OrderedDict()

    def give_out(self, blob: BlobId) -> None:
        """Serve a blob to every member that knows its name."""
        self._given_out[blob] = None
        if len(self._given_out) > GIVEN_OUT_MAX:
            self._given_out.popitem(last=False)

    def tree(self, blob: BlobId) -> trees.Tree | str:
        """Return a stored tree, or why there is none. Reads the disk."""
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
        """Return the requested pieces of a blob, or why they are refused."""
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
