"""A blob's name, and the hash tree that proves each of its pieces.

The bytes are cut into pieces of `PIECE_BYTES_MAX`: level 0. The hashes of up to
`FANOUT` pieces are one piece of the next level, and so on until one piece is left, the
top. The name of a blob holds the hash of its size and of its top, and its size as well,
so the name alone says how many pieces there are, and each can be verified when it
comes, the top first.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final, final

from shoal.model.ids import BlobId
from shoal.protocol.limits import LEVEL_MAX, PIECE_BYTES_MAX

HASH_BYTES: Final = 32
FANOUT: Final = 1_024
BLOB_BYTES_MAX: Final = PIECE_BYTES_MAX * FANOUT**LEVEL_MAX

_ROOT: Final = b"\xff"  # no level has this number
_NAME: Final = re.compile(r"([0-9a-f]{64})-(0|[1-9][0-9]{0,15})")


def size_of(blob: str) -> int | None:
    """Return how many bytes a blob has, by its name; None if it is no name."""
    found = _NAME.fullmatch(blob)
    if found is None or (size := int(found[2])) > BLOB_BYTES_MAX:
        return None
    return size


def counts(size: int) -> tuple[int, ...]:
    """Return how many pieces a blob of `size` bytes has on each level, top last."""
    assert 0 <= size <= BLOB_BYTES_MAX
    count = max(1, -(-size // PIECE_BYTES_MAX))
    found = [count]
    while count > 1:
        count = -(-count // FANOUT)
        found.append(count)
    return tuple(found)


def piece_hash(level: int, data: bytes) -> bytes:
    """Return the hash of a piece; pieces of two levels never have the same."""
    hashed = hashlib.sha256(bytes((level,)))
    hashed.update(data)
    return hashed.digest()


def name_of(size: int, top: bytes) -> BlobId:
    """Return the name of a blob of this size, whose top has this hash."""
    digest = hashlib.sha256(_ROOT + size.to_bytes(8, "big") + top).hexdigest()
    return BlobId(f"{digest}-{size}")


def is_piece(blob: BlobId, leaf: bytes, data: bytes) -> bool:
    """Whether bytes are the piece of level 0 that has this hash.

    Without a hash, whether they are all of a blob that has a single piece.
    """
    found = piece_hash(0, data)
    return found == leaf if leaf else name_of(len(data), found) == blob


def name_of_leaves(size: int, leaves: bytes) -> BlobId:
    """Return the name of a blob, by the hashes of all its pieces of level 0."""
    level = leaves
    for number, _ in enumerate(counts(size)[1:], start=1):
        level = b"".join(piece_hash(number, part) for part in cut(level))
    return name_of(size, level)


def name_of_bytes(data: bytes) -> BlobId:
    """Return the name of a blob that is in memory."""
    hasher = Hasher()
    hasher.update(data)
    return hasher.name()


def cut(hashes: bytes) -> list[bytes]:
    """Cut the hashes of one level into the pieces of the next."""
    step = FANOUT * HASH_BYTES
    return [hashes[at : at + step] for at in range(0, len(hashes), step)]


def node_of(size: int, leaves: bytes, level: int, index: int) -> bytes | None:
    """Return a piece above level 0, by the hashes of level 0; None if there is none."""
    found = counts(size)
    if not 0 < level < len(found) or index >= found[level]:
        return None
    hashes = leaves
    for number in range(1, level):
        hashes = b"".join(piece_hash(number, part) for part in cut(hashes))
    return cut(hashes)[index]


@final
class Hasher:
    """Finds the name of bytes that come in parts of any size."""

    def __init__(self) -> None:
        self.size = 0
        self._rest = bytearray()
        self._leaves = bytearray()

    def update(self, data: bytes) -> None:
        """Take in what follows."""
        self.size += len(data)
        if self._rest:
            room = PIECE_BYTES_MAX - len(self._rest)
            self._rest += data[:room]
            data = data[room:]
            if len(self._rest) < PIECE_BYTES_MAX:
                return
            self._leaves += piece_hash(0, bytes(self._rest))
            self._rest.clear()
        whole = len(data) - len(data) % PIECE_BYTES_MAX
        view = memoryview(data)
        for at in range(0, whole, PIECE_BYTES_MAX):
            hashed = hashlib.sha256(b"\0")
            hashed.update(view[at : at + PIECE_BYTES_MAX])
            self._leaves += hashed.digest()
        self._rest += view[whole:]

    def leaves(self) -> bytes:
        """Return the hashes of all pieces; nothing may follow."""
        if self._rest or not self._leaves:
            self._leaves += piece_hash(0, bytes(self._rest))
            self._rest.clear()
        return bytes(self._leaves)

    def name(self) -> BlobId:
        """Return the name of the bytes so far; no more may follow."""
        return name_of_leaves(self.size, self.leaves())


@final
class Proof:
    """What is known for sure of the hashes of one blob, while its pieces come."""

    def __init__(self, blob: BlobId, size: int) -> None:
        self.blob = blob
        self.size = size
        self.counts = counts(size)
        self._nodes: dict[tuple[int, int], bytes] = {}  # proved pieces above level 0

    @property
    def top(self) -> int:
        """The level that has one piece."""
        return len(self.counts) - 1

    def length(self, level: int, index: int) -> int:
        """Return how many bytes a piece has."""
        if level == 0:
            return min(PIECE_BYTES_MAX, self.size - index * PIECE_BYTES_MAX)
        below = self.counts[level - 1] - index * FANOUT
        return min(FANOUT, below) * HASH_BYTES

    def accepts(self, level: int, index: int, data: bytes) -> bool:
        """Take in a piece above level 0 if it is right; its parent must be known."""
        assert 0 < level <= self.top
        if len(data) != self.length(level, index):
            return False
        found = piece_hash(level, data)
        if level == self.top:
            right = name_of(self.size, found) == self.blob
        else:
            right = found == self.leaf(level, index)
        if right:
            self._nodes[level, index] = data
        return right

    def leaf(self, level: int, index: int) -> bytes:
        """Return the hash of a piece; empty for the top, whose hash is the name."""
        parent = self._nodes.get((level + 1, index // FANOUT), b"")
        at = index % FANOUT * HASH_BYTES
        return parent[at : at + HASH_BYTES]

    def leaves(self) -> bytes:
        """Return the hashes of level 0; all pieces above must have come."""
        if self.top == 0:
            return b""
        parts = (self._nodes[1, index] for index in range(self.counts[1]))
        return b"".join(parts)
