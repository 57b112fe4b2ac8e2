"""Peers that serve blobs, well or badly, in virtual time, to one that fetches."""

import heapq
import math
from collections.abc import Callable, Iterable
from random import Random

from shoal.core.artifacts.blob_transfers import BlobTransfers
from shoal.core.artifacts.events import (
    AnswerFetch,
    BlobFinished,
    BlobWanted,
    FetchDropped,
    FindPieces,
    FinishBlob,
    LeaveBlob,
    MakeRoom,
    PiecesFound,
    PiecesStored,
    RoomMade,
    StorePiece,
)
from shoal.core.events import (
    DeadlineReached,
    Effect,
    Event,
    MessageReceived,
    Send,
    Tell,
)
from shoal.core.membership.roster import Roster
from shoal.core.proximity.network_map import Path
from shoal.model.ids import BlobId, NodeId
from shoal.protocol.blob_hashing import Hasher, is_piece, node_of
from shoal.protocol.blobs import BlobPiece, PieceRefusal, PieceWanted
from shoal.protocol.limits import PIECE_BYTES_MAX
from shoal.sim.node import trust

FETCHER = NodeId("fetcher")


class Server:
    """A peer at the end of a link: `latency_s` away, so many bytes a second."""

    def __init__(
        self,
        pond: "Pond",
        name: str,
        *,
        latency_s: float = 0.01,
        bytes_s: float = 100e6,
        lies: float = 0.0,
        loss: float = 0.0,
        holds: bool = True,
    ) -> None:
        self.node = NodeId(name)
        self.latency_s = latency_s
        self.bytes_s = bytes_s
        self.lies = lies
        self.loss = loss
        self.holds = holds
        self.down = False
        self.sent_bytes = 0
        self.queue_s_max = 0.0  # how long a message would have waited on the link
        self._pond = pond
        self._free_at = 0.0

    def ask(self, wanted: PieceWanted) -> None:
        """Answer later, as the link allows."""
        pond = self._pond
        if self.down or pond.rng.random() < self.loss:
            return
        data = pond.blobs.get(wanted.blob)
        if data is None or not self.holds:
            refusal = PieceRefusal(blob=wanted.blob, reason="it is not held here")
            event = MessageReceived(self.node, refusal)
            pond.after(2 * self.latency_s, lambda: self._deliver(event))
            return
        for level, index in wanted.pieces:
            piece = self._piece(wanted.blob, data, level, index)
            begin = max(pond.now + self.latency_s, self._free_at)
            self._free_at = begin + len(piece.data) / self.bytes_s
            self.queue_s_max = max(self.queue_s_max, self._free_at - pond.now)
            self.sent_bytes += len(piece.data)
            if pond.rng.random() < self.loss:
                continue
            came = MessageReceived(self.node, piece)
            at_s = self._free_at + self.latency_s - pond.now
            pond.after(at_s, lambda came=came: self._deliver(came))  # type: ignore[misc]

    def _deliver(self, event: Event) -> None:
        if not self.down:
            self._pond.feed(event)

    def _piece(self, blob: BlobId, data: bytes, level: int, index: int) -> BlobPiece:
        if level == 0:
            found = data[index * PIECE_BYTES_MAX : (index + 1) * PIECE_BYTES_MAX]
        else:
            hasher = Hasher()
            hasher.update(data)
            found = node_of(len(data), hasher.leaves(), level, index) or b""
        if found and self._pond.rng.random() < self.lies:
            found = bytes([found[0] ^ 1]) + found[1:]
        return BlobPiece(blob=blob, level=level, index=index, data=found)


class Pond:
    """The world of one machine."""

    def __init__(self, seed: int = 0, write_s: float = 0.001) -> None:
        self.rng = Random(seed)
        self.now = 0.0
        self.blobs: dict[BlobId, bytes] = {}
        self.paths: dict[NodeId, Path] = {}
        self.restart()
        self.servers: dict[NodeId, Server] = {}
        self.disk: dict[BlobId, dict[int, bytes]] = {}
        self.done: dict[BlobId, bytes] = {}
        self.failed: dict[BlobId, str] = {}
        self.asks: list[tuple[NodeId, PieceWanted]] = []
        self._write_s = write_s
        self._todo: list[tuple[float, int, Callable[[], object]]] = []
        self._seq = 0

    def server(self, name: str, **how: float) -> Server:
        """Add a peer."""
        made = Server(self, name, **how)  # type: ignore[arg-type]
        self.servers[made.node] = made
        return made

    def blob(self, size: int) -> BlobId:
        """Add a blob of random bytes, which all peers have."""
        data = self.rng.randbytes(size)
        hasher = Hasher()
        hasher.update(data)
        self.blobs[hasher.name()] = data
        return hasher.name()

    def restart(self) -> None:
        """Begin another life of the machine; the disk stays as it is."""
        roster = Roster(trust.members(), trust.WALL_AT_START_S)
        self.machine = BlobTransfers(FETCHER, roster, None, self._between)
        self.fetching = self.machine.fetching
        self._wanted: dict[int, BlobId] = {}

    def _between(self, one: NodeId, other: NodeId) -> Path | None:
        """Return what was measured between a peer and the machine, if anything."""
        return self.paths.get(one if other == FETCHER else other)

    def want(
        self,
        blob: BlobId,
        sources: Iterable[str] | None = None,
        lost_s: float = math.inf,
    ) -> int:
        """Begin to fetch a blob; return the token."""
        nodes = list(self.servers) if sources is None else map(NodeId, sources)
        token = len(self._wanted) + 1
        self._wanted[token] = blob
        self.feed(BlobWanted(token, blob, tuple(nodes), lost_s=lost_s))
        return token

    def drop(self, token: int) -> None:
        """Want a blob no more."""
        self.feed(FetchDropped(token))

    def after(self, delay_s: float, act: Callable[[], object]) -> None:
        """Do something later."""
        self._seq += 1
        heapq.heappush(self._todo, (self.now + delay_s, self._seq, act))

    def feed(self, event: Event) -> None:
        """Tell the machine a fact, and do what it wants."""
        for effect in self.machine.handle(event, self.now):
            self._perform(effect)

    def run(self, until_s: float = 1_000.0) -> None:
        """Let time pass until nothing is left to do."""
        while len(self.fetching) and self.now < until_s:
            due = self.machine.next_deadline()
            at = self._todo[0][0] if self._todo else until_s
            if due is not None and due < at:
                self.now = max(self.now, due)
                self.feed(DeadlineReached())
                continue
            if not self._todo:
                return
            self.now, _, act = heapq.heappop(self._todo)
            act()

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Send(message=PieceWanted() as wanted):
                self.asks.append((effect.peer, wanted))
                server = self.servers.get(effect.peer)
                if server is not None:
                    self.after(server.latency_s, lambda: server.ask(wanted))
            case MakeRoom():
                resumed = effect.blob in self.disk
                self._answer(RoomMade(effect.fetch, effect.blob, resumed))
            case StorePiece():
                self._answer(self._stored(effect))
            case FindPieces():
                self._answer(self._found(effect))
            case FinishBlob():
                self._answer(BlobFinished(effect.fetch))
            case AnswerFetch():
                blob = self._wanted[effect.token]
                if effect.reason:
                    self.failed[blob] = effect.reason
                else:
                    pieces = self.disk[blob]
                    self.done[blob] = b"".join(pieces[n] for n in sorted(pieces))
            case _:
                assert isinstance(effect, LeaveBlob | Tell)

    def _answer(self, fact: Event) -> None:
        self.after(self._write_s, lambda: self.feed(fact))

    def _stored(self, effect: StorePiece) -> PiecesStored:
        if not is_piece(effect.blob, effect.leaf, effect.data):
            return PiecesStored(effect.fetch, wrong=(effect.index,))
        self.disk.setdefault(effect.blob, {})[effect.index] = effect.data
        return PiecesStored(effect.fetch, stored=(effect.index,))

    def _found(self, effect: FindPieces) -> PiecesFound:
        here = self.disk.get(effect.blob, {})
        right = [
            index
            for index in sorted(here)
            if effect.first <= index < effect.first + len(effect.leaves) // 32
        ]
        return PiecesFound(effect.fetch, effect.part, tuple(right))
