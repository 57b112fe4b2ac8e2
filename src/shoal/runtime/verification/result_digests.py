"""Digest results for comparison, from fetched bytes that were verified by hash.

Tree names include a salt of the node that made them, so equal outputs of two workers
have different names. The digest covers a tree's entries, which are equal if all paths
and files are.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec

from shoal.blobs.trees import Tree
from shoal.model.ids import BlobId
from shoal.model.spec.verification import OUTPUTS, STDOUT
from shoal.protocol.blob_hashing import size_of
from shoal.protocol.messages import ALL_OUTPUTS

if TYPE_CHECKING:
    from shoal.model.job import Verify
    from shoal.protocol.messages import Outcome
    from shoal.runtime.artifacts.blob_reader import BlobReader


def digest_of(shelf: BlobReader, outcome: Outcome, verify: Verify) -> str:
    """Return the digest of the compared part; empty if there is none. Reads disk.

    There is none if the path is missing or all its files are empty.
    """
    name = outcome.outputs.get(STDOUT if verify.compare == STDOUT else ALL_OUTPUTS)
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
