"""Simulate the blobs on one node's disk, and who waits for more of them.

The twin of `runtime.artifacts.blob_exchange`: `core.artifacts.blob_transfers` decides
who is asked for which piece and who gets one; this does what it says. What is on disk
survives crashes, also of a blob that is not whole yet. Who waits for it does not.
Disks are slow at times; while a world has faults, they are also full or forgetful.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Final, Protocol, final

import msgspec

from shoal.blobs import trees
from shoal.core.artifacts.events import (
    AnswerFetch,
    BlobEvent,
    BlobFinished,
    BlobWanted,
    FetchDropped,
    FindPieces,
    FinishBlob,
    LeaveBlob,
    MakeRoom,
    PiecesFound,
    PiecesOf,
    PiecesRead,
    PiecesStored,
    ReadPieces,
    ReadTree,
    RoomMade,
    StorePiece,
    TreeRead,
    TreeWanted,
)
from shoal.core.events import Event
from shoal.model.ids import BlobId, NodeId
from shoal.protocol.blob_hashing import (
    HASH_BYTES,
    Hasher,
    is_piece,
    name_of_bytes,
    node_of,
    piece_hash,
)
from shoal.protocol.blobs import PieceWanted
from shoal.protocol.limits import PIECE_BYTES_MAX

DISK_S: Final = (0.0005, 0.03)
SLOW_DISK_S: Final = 1.0
FULL_SHARE: Final = 0.01  # share of writes that a disk refuses
FORGOTTEN_SHARE: Final = 0.02  # share of partial blobs that a disk drops

Done = Callable[[str], None]
"""Told how a fetch ended: the reason why it failed, or nothing."""


class PackedTree(msgspec.Struct, frozen=True):
    """A folder as it is: the truth about a tree of the world."""

    name: BlobId
    data: bytes  # of the tree itself
    files: dict[BlobId, bytes]

    @property
    def blobs(self) -> dict[BlobId, bytes]:
        """The tree itself and its files."""
        return {self.name: self.data, **self.files}


def pack_tree(
    salt: bytes, contents: Sequence[bytes], folders: Sequence[str] = ()
) -> PackedTree:
    """Return the tree of a folder with these files and empty folders."""
    files = {name_of_bytes(data): data for data in contents}
    entries = [
        trees.TreeEntry(f"f{number}", "file", name) for number, name in enumerate(files)
    ]
    entries += [trees.TreeEntry(folder, "folder") for folder in folders]
    data = trees.encode(trees.make(salt, entries))
    return PackedTree(name_of_bytes(data), data, files)


class NodeCalls(Protocol):
    """What blobs need of the node they are on."""

    def feed(self, event: Event) -> None:
        """Tell the machine a fact."""
        ...

    def later(self, delay_s: float, call: Callable[[], None]) -> None:
        """Call back after a while, unless the node crashes before."""
        ...

    def is_disk_slow(self) -> bool:
        """Whether disk operations take long now."""
        ...

    def is_disk_faulty(self) -> bool:
        """Whether the disk may refuse or forget something now."""
        ...


@final
class SimBlobs:
    """The blobs of one node, across restarts."""

    def __init__(
        self, node: NodeCalls, rng: Random, known: dict[BlobId, PackedTree]
    ) -> None:
        """Add trees that are made here to those `known` in the whole world."""
        self.whole: dict[BlobId, bytes] = {}
        self.known = known  # the trees of the world
        self.lies = 0.0  # share of pieces that it sends and are wrong
        self.on_reads: Callable[[int], None] = _ignore  # told how many are under way
        self._partial: dict[BlobId, dict[int, bytes]] = {}
        self._node = node
        self._rng = rng
        self._tokens = itertools.count(1)
        self._calls: dict[int, Done] = {}
        self._reads = 0

    @property
    def performers(self) -> Mapping[type, Callable[[Any], None]]:
        """The performer of each effect."""
        return {
            MakeRoom: self._make_room,
            StorePiece: self._store,
            FindPieces: self._find,
            FinishBlob: self._finish,
            LeaveBlob: self._leave,
            ReadTree: self._read_tree,
            ReadPieces: self._read_pieces,
            AnswerFetch: self._answer,
        }

    def crashed(self) -> None:
        """Forget who waits for what."""
        self._calls.clear()
        self._reads = 0

    def keep(self, tree: PackedTree, *, is_lost: bool = False) -> None:
        """Store a tree, unless it is lost at once: only the world knows it then."""
        self.known[tree.name] = tree
        if not is_lost:
            self.whole.update(tree.blobs)

    def has_tree(self, name: str) -> bool:
        """Whether a tree and all its files are on this disk, as they really are."""
        tree = self.known.get(BlobId(name))
        return tree is not None and all(
            self.whole.get(blob) == data for blob, data in tree.blobs.items()
        )

    # Who wants what.

    def fetch_tree(
        self, tree: BlobId, sources: tuple[NodeId, ...], done: Done, *, tries: int = 1
    ) -> int:
        """Fetch a tree with its files; return a token to drop it by."""
        token = self._call(done)
        self._node.feed(TreeWanted(token, tree, sources, tries))
        return token

    def fetch(
        self,
        blob: BlobId,
        sources: tuple[NodeId, ...],
        done: Done,
        lost_s: float = math.inf,
    ) -> int:
        """Fetch a blob by its name alone; return a token to drop it by."""
        token = self._call(done)
        self._node.feed(BlobWanted(token, blob, sources, lost_s=lost_s))
        return token

    def drop(self, token: int) -> None:
        """Want something no more."""
        if self._calls.pop(token, None) is not None:
            self._node.feed(FetchDropped(token))

    def _call(self, done: Done) -> int:
        token = next(self._tokens)
        self._calls[token] = done
        return token

    def _answer(self, effect: AnswerFetch) -> None:
        done = self._calls.pop(effect.token, None)
        if done is not None:  # Else it was dropped when this was on its way.
            self._node.later(0.0, lambda: done(effect.reason))

    # The disk.

    def _later(self, fact: Callable[[], BlobEvent]) -> None:
        """Let the disk take its time, and tell the machine what came of it."""
        delay_s = self._rng.uniform(*DISK_S)
        if self._node.is_disk_slow():
            delay_s += self._rng.uniform(0.0, SLOW_DISK_S)
        self._node.later(delay_s, lambda: self._node.feed(fact()))

    def _fails(self, share: float) -> bool:
        return self._rng.random() < share and self._node.is_disk_faulty()

    def _make_room(self, effect: MakeRoom) -> None:
        fetch, blob = effect.fetch, effect.blob
        reason = "the disk is full" if self._fails(FULL_SHARE) else ""
        resumed = blob in self._partial
        if not reason:
            self._partial.setdefault(blob, {})
        self._later(lambda: RoomMade(fetch, blob, resumed, reason))

    def _store(self, effect: StorePiece) -> None:
        is_full = self._fails(FULL_SHARE)

        def write() -> PiecesStored:
            if is_full:
                return PiecesStored(effect.fetch, reason="the disk is full")
            if not is_piece(effect.blob, effect.leaf, effect.data):
                return PiecesStored(effect.fetch, wrong=(effect.index,))
            if not effect.leaf:
                self.whole[effect.blob] = effect.data
            elif effect.blob in self._partial:
                self._partial[effect.blob][effect.index] = effect.data
            else:
                return PiecesStored(effect.fetch, reason="it had to make room")
            return PiecesStored(effect.fetch, stored=(effect.index,))

        self._later(write)

    def _find(self, effect: FindPieces) -> None:
        here = self._partial.get(effect.blob, {})
        leaves = effect.leaves
        found = tuple(
            effect.first + nth
            for nth in range(len(leaves) // HASH_BYTES)
            if piece_hash(0, here.get(effect.first + nth, b"?"))
            == leaves[nth * HASH_BYTES : (nth + 1) * HASH_BYTES]
        )
        self._later(lambda: PiecesFound(effect.fetch, effect.part, found))

    def _finish(self, effect: FinishBlob) -> None:
        def finish() -> BlobFinished:
            pieces = self._partial.pop(effect.blob, {})
            self.whole[effect.blob] = b"".join(pieces[n] for n in sorted(pieces))
            return BlobFinished(effect.fetch)

        self._later(finish)

    def _leave(self, effect: LeaveBlob) -> None:
        """Keep what was fetched for the next who wants it, or lose it at once."""
        if self._fails(FORGOTTEN_SHARE):
            self._partial.pop(effect.blob, None)

    def _read_tree(self, effect: ReadTree) -> None:
        def read() -> TreeRead:
            data = self.whole.get(effect.tree)
            found = "it is not held here" if data is None else trees.decode(data)
            if isinstance(found, str):
                is_here = data is not None
                return TreeRead(
                    effect.token, effect.tree, is_here=is_here, reason=found
                )
            files = tuple(found.files())
            missing = tuple(blob for blob in files if blob not in self.whole)
            return TreeRead(effect.token, effect.tree, files, missing)

        self._later(read)

    def _read_pieces(self, effect: ReadPieces) -> None:
        self._reads += 1
        self.on_reads(self._reads)

        def read() -> PiecesRead:
            self._reads -= 1
            found = tuple(self._pieces(wanted) for wanted in effect.wanted)
            return PiecesRead(effect.peer, found)

        self._later(read)

    def _pieces(self, wanted: PieceWanted) -> PiecesOf:
        data = self.whole.get(wanted.blob)
        if data is None:
            return PiecesOf(wanted.blob, reason="it is not held here")
        pieces = tuple(
            (level, index, self._said(_piece(data, level, index)))
            for level, index in wanted.pieces
        )
        return PiecesOf(wanted.blob, pieces)

    def _said(self, piece: bytes) -> bytes:
        """Return a piece as this node sends it, which may lie."""
        if not self.lies or self._rng.random() >= self.lies:
            return piece
        if not piece or self._rng.random() < 0.2:
            return piece + b"!"
        return bytes([piece[0] ^ 1]) + piece[1:]


def _piece(data: bytes, level: int, index: int) -> bytes:
    if level == 0:
        return data[index * PIECE_BYTES_MAX : (index + 1) * PIECE_BYTES_MAX]
    hasher = Hasher()
    hasher.update(data)
    return node_of(len(data), hasher.leaves(), level, index) or b""


def _ignore(_: int) -> None:
    """Ignore it."""
