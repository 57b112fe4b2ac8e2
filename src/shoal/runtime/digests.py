"""What results are compared by, from bytes that are here and were verified by hash.

Trees have a salt of the node that made them, so equal outputs of two workers have
different names; the entries of a tree are the same if all paths and files are.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

import msgspec

from shoal.blobs.hashing import size_of
from shoal.blobs.trees import Tree
from shoal.model.ids import BlobId
from shoal.model.verification import OUTPUTS, STDOUT

if TYPE_CHECKING:
    from shoal.model.job import Verify
    from shoal.protocol.messages import Outcome
    from shoal.runtime.shelf import Shelf

ALL: Final = "."
"""Under which an outcome names the tree of all outputs."""


def digest_of(shelf: Shelf, outcome: Outcome, verify: Verify) -> str:
    """Return the digest of what is compared; empty if there is nothing. Reads.

    Nothing means: no such path, or no byte in any file of it.
    """
    name = outcome.outputs.get(STDOUT if verify.compare == STDOUT else ALL)
    tree = shelf.tree(BlobId(name)) if name else "there are no outputs"
    if not isinstance(tree, Tree):
        return ""
    below = "" if verify.compare in (OUTPUTS, STDOUT) else verify.compare.rstrip("/")
    entries = [
        entry
        for entry in tree.entries
        if not below or entry.path == below or entry.path.startswith(f"{below}/")
    ]
    if not any(size_of(e.to) for e in entries if e.kind in ("file", "program")):
        return ""
    return hashlib.sha256(msgspec.msgpack.encode(entries)).hexdigest()
