"""Decide who gets which pieces of blobs from this node, and in which order.

Theory of operation. Names of trees are salted, so a member that knows one was told it:
it may have the tree and its files. A file by itself is for nobody, because its name is
a hash of its bytes and can be guessed. The exception is a blob that a task published on
purpose. What a tree lists is on disk, so the disk is asked the first time.

Each peer has a queue of questions and at most one read at a time:

    PieceWanted --> queued --its tree is not known--> ReadTree --TreeRead--> queued
                           --not allowed------------> PieceRefusal
                           --allowed----------------> ReadPieces --PiecesRead--> sent

Peers take turns. Whether a peer is still a member is looked up again when the bytes
are here: a node that was revoked meanwhile gets none.

Nothing is durable. Bounded are the questions of one peer and of all, the pieces of one
read, the reads at a time, and the trees that are remembered. A question beyond a bound
is dropped; whoever fetches asks again.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from typing import TYPE_CHECKING, Final, final

from shoal.core.artifacts.events import ReadPieces, ReadTree
from shoal.core.events import Send
from shoal.protocol.blobs import BlobPiece, PieceRefusal

if TYPE_CHECKING:
    from shoal.core.artifacts.events import (
        BlobEffect,
        PiecesOf,
        PiecesRead,
        TreeRead,
    )
    from shoal.core.membership.roster import Roster
    from shoal.model.ids import BlobId, NodeId
    from shoal.protocol.blobs import PieceWanted

    ServingEffect = BlobEffect | Send

QUESTIONS_MAX: Final = 1_024
"""Most queued questions of one peer; an honest peer has fewer in flight."""

QUESTIONS_ALL_MAX: Final = 16_384
PIECES_AT_ONCE: Final = 64
READS_MAX: Final = 4
"""Most reads for peers at a time; the node has other work."""

TREES_KNOWN_MAX: Final = 64
GIVEN_OUT_MAX: Final = 100_000
NOT_NAMED: Final = "it is not held here, or not in a tree that was named"
"""One answer for both: whoever guesses a name learns nothing."""


@final
class PieceServing:
    """The questions of all peers. `bytes_served` counts what was sent."""

    def __init__(self, roster: Roster) -> None:
        """Serve members of `roster` only."""
        self.counts: Counter[str] = Counter()
        self.bytes_served = 0
        self.questions = 0  # queued, of all peers
        self._roster = roster
        self._queues: dict[NodeId, deque[PieceWanted]] = {}  # none is empty
        self._turns: OrderedDict[NodeId, None] = OrderedDict()  # queued, and not busy
        self._reading: dict[NodeId, bool] = {}  # whether its link is still the same
        self._parked: dict[NodeId, BlobId] = {}  # the tree that its next question needs
        self._listing: dict[BlobId, None] = {}  # trees that are being read for them
        self._files: OrderedDict[BlobId, frozenset[BlobId]] = OrderedDict()
        self._given_out: OrderedDict[BlobId, None] = OrderedDict()

    @property
    def reads(self) -> int:
        """How many reads are under way."""
        return len(self._reading) + len(self._listing)

    def knows(self, tree: BlobId) -> bool:
        """Whether a tree was read here not long ago."""
        return tree in self._files

    def give_out(self, blob: BlobId) -> None:
        """Serve a blob to every member that knows its name."""
        self._given_out[blob] = None
        if len(self._given_out) > GIVEN_OUT_MAX:
            self._given_out.popitem(last=False)

    def on_wanted(self, peer: NodeId, wanted: PieceWanted) -> list[ServingEffect]:
        """Queue a question; drop it if there are too many."""
        if not self._has_room(peer):
            self.counts["questions dropped"] += 1
            return []
        self._queues.setdefault(peer, deque()).append(wanted)
        self.questions += 1
        self._line_up(peer)
        return self._serve()

    def on_lost(self, peer: NodeId) -> None:
        """Forget the questions of a peer whose link is down; it asks again."""
        self.questions -= len(self._queues.pop(peer, ()))
        self._turns.pop(peer, None)
        self._parked.pop(peer, None)
        if peer in self._reading:
            self._reading[peer] = False

    def on_tree(self, event: TreeRead) -> list[ServingEffect]:
        """Serve the peers that wait for a tree; refuse them if there is none."""
        if event.token == 0:
            self._listing.pop(event.tree, None)
        if not event.reason:
            self._files[event.tree] = frozenset(event.files)
            self._files.move_to_end(event.tree)
            if len(self._files) > TREES_KNOWN_MAX:
                self._files.popitem(last=False)
        effects: list[ServingEffect] = []
        for peer in [p for p, tree in self._parked.items() if tree == event.tree]:
            if event.reason:
                refused = self._next(peer)
                effects.append(self._refuse(peer, refused.blob, NOT_NAMED))
            del self._parked[peer]
            self._line_up(peer)
        return effects + self._serve()

    def on_read(self, event: PiecesRead, now: float) -> list[ServingEffect]:
        """Send what was read to a peer that is still a member."""
        peer = event.peer
        is_linked = self._reading.pop(peer)
        if not self._is_member(peer, now):
            self.on_lost(peer)
            return self._serve()
        self._line_up(peer)
        effects: list[ServingEffect] = []
        for found in event.found if is_linked else ():
            effects += self._answers(peer, found)
        return effects + self._serve()

    def _answers(self, peer: NodeId, found: PiecesOf) -> list[Send]:
        if found.reason:
            return [self._refuse(peer, found.blob, found.reason)]
        blob = found.blob
        self.bytes_served += sum(len(data) for _, _, data in found.pieces)
        return [
            Send(peer, BlobPiece(blob=blob, level=level, index=index, data=data))
            for level, index, data in found.pieces
        ]

    def _refuse(self, peer: NodeId, blob: BlobId, reason: str) -> Send:
        self.counts["refused"] += 1
        return Send(peer, PieceRefusal(blob=blob, reason=reason))

    def _has_room(self, peer: NodeId) -> bool:
        queued = len(self._queues.get(peer, ()))
        return queued < QUESTIONS_MAX and self.questions < QUESTIONS_ALL_MAX

    def _is_member(self, peer: NodeId, now: float) -> bool:
        return self._roster.get(peer, now) is not None

    def _may_have(self, wanted: PieceWanted) -> bool | None:
        """Whether a member may have a blob; None if the disk must be asked."""
        if wanted.blob in self._given_out:
            return True
        tree = wanted.under or wanted.blob
        files = self._files.get(tree)
        if files is None:
            return None
        return wanted.blob == tree or wanted.blob in files

    def _line_up(self, peer: NodeId) -> None:
        """Let a peer have its turn, if it has a question and is not busy."""
        is_busy = peer in self._reading or peer in self._parked
        if peer in self._queues and not is_busy:
            self._turns[peer] = None

    def _next(self, peer: NodeId) -> PieceWanted:
        queue = self._queues[peer]
        self.questions -= 1
        if len(queue) == 1:
            del self._queues[peer]
        return queue.popleft()

    def _serve(self) -> list[ServingEffect]:
        """Read for as many peers as may be read for, each in its turn."""
        effects: list[ServingEffect] = []
        while self._turns and self._may_read():
            peer, _ = self._turns.popitem(last=False)
            effects += self._serve_one(peer)
        return effects

    def _may_read(self) -> bool:
        return self.reads < READS_MAX

    def _serve_one(self, peer: NodeId) -> list[ServingEffect]:
        """Take up the next questions of a peer: up to `PIECES_AT_ONCE` pieces."""
        effects: list[ServingEffect] = []
        batch: list[PieceWanted] = []
        count = 0
        while queue := self._queues.get(peer):
            count += len(queue[0].pieces)
            if batch and count > PIECES_AT_ONCE:
                break
            allowed = self._may_have(queue[0])
            if allowed is None:
                if not batch:
                    effects += self._park(peer, queue[0].under or queue[0].blob)
                break
            wanted = self._next(peer)
            if allowed:
                batch.append(wanted)
            else:
                effects.append(self._refuse(peer, wanted.blob, NOT_NAMED))
        if batch:
            self._reading[peer] = True
            effects.append(ReadPieces(peer, tuple(batch)))
        return effects

    def _park(self, peer: NodeId, tree: BlobId) -> list[ServingEffect]:
        self._parked[peer] = tree
        if tree in self._listing:
            return []
        self._listing[tree] = None
        return [ReadTree(0, tree)]
