"""Decide which piece of a blob to ask of which peer, and when.

Theory of operation. A fetch is told which peers may have its blob, and asks all that
are near at once, each at its own pace (`piece_sources`). Those that are much farther
away are asked only if none that is near answers in time: the links between sites are
narrow, and others need them. The hashes come first, from the top down, so each piece
can be proved as it comes.

    wanted --several pieces--> room is made on disk --RoomMade--> asking
    asking --piece of hashes, proved here--> the pieces below it are asked for
           --piece of bytes-----> StorePiece --PiecesStored--> stored
                                             --wrong---------> asked of another peer
    all pieces stored --> FinishBlob --BlobFinished--> ended
    no peer is left, or nothing comes for `STALL_S` --> ended, with the reason
    no peer has a link any more, for as long as who wants it waits --> ended likewise

The host proves pieces of bytes when it writes them: hashes are quick to prove, bytes
are not, and a disk has threads. A peer that sends a wrong piece is not asked for that
blob again; one that does not answer in time is left alone for a while.

Nothing here is journalled: the disk keeps what was stored, and a later fetch finds it.
What was asked for, or has come and is not stored, is bounded by `UNDER_WAY_MAX` bytes.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict, deque
from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.core.artifacts.events import (
    BlobEffect,
    FindPieces,
    FinishBlob,
    LeaveBlob,
    MakeRoom,
    StorePiece,
)
from shoal.core.artifacts.piece_sources import ROOM_MIN, Source, Sources
from shoal.core.events import Send
from shoal.core.proximity.events import TransferMeasured
from shoal.model.ids import BlobId, NodeId
from shoal.protocol.blob_hashing import FANOUT, Proof, size_of
from shoal.protocol.blobs import BlobPiece, PieceRefusal, PieceWanted
from shoal.protocol.limits import PIECE_BYTES_MAX, PIECES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from shoal.core.artifacts.events import (
        BlobFinished,
        PiecesFound,
        PiecesStored,
        RoomMade,
    )
    from shoal.core.proximity.network_map import Path

UNDER_WAY_MAX: Final = 256 * PIECE_BYTES_MAX
"""Bytes that were asked for, or have come and are not on disk, in all."""

SKIPPED_MAX: Final = 32
"""Blobs without a free peer, after which no others are looked at."""

STALL_S: Final = 60.0
"""A fetch that gets nothing for so long has failed."""

LOOK_S: Final = 5.0
"""How often we look whether one has."""

Place = tuple[int, int]
"""Level and index of a piece."""


class FetchEnded(msgspec.Struct, frozen=True):
    """A blob is in the store, or cannot be had for this reason; who wanted it."""

    blob: BlobId
    tokens: tuple[int, ...]
    reason: str = ""


Step = BlobEffect | Send | FetchEnded


@final
class _Fetch:
    """A blob on its way. A piece is to do, asked for, unwritten, or done."""

    def __init__(self, number: int, proof: Proof, under: BlobId, now: float) -> None:
        self.number = number
        self.proof = proof
        self.under = under
        self.tokens: dict[int, None] = {}  # who wants it
        self.sources: dict[NodeId, None] = {}
        self.resumed = False
        self.is_at_disk = False  # while room is made, and while it is taken in
        self.todo: deque[Place] = deque()
        self.asked: dict[Place, tuple[NodeId, float]] = {}
        self.unwritten: dict[int, NodeId] = {}  # who sent each
        self.looked_for: dict[int, None] = {}  # pieces of level 1
        self.left = proof.counts[0]  # pieces of level 0 that are not done
        self.refused: dict[NodeId, str] = {}
        self.progress_at = now
        self.lost_s = 0.0  # that peers without a link are waited for

    @property
    def blob(self) -> BlobId:
        return self.proof.blob

    def cost(self, place: Place) -> int:
        """Return what a piece counts while it is under way."""
        return max(ROOM_MIN, self.proof.length(*place))

    def cost_todo(self) -> int:
        """Return about what all pieces count that are to be asked for."""
        return self.cost(self.todo[0]) * len(self.todo)


@final
class PieceFetch:
    """All blobs that one node fetches. `bytes_fetched` counts what was right."""

    def __init__(self, path: Callable[[NodeId], Path | None] = lambda _: None) -> None:
        """Fetch nothing yet; `path` says what is between a peer and this node."""
        self._path = path
        self.counts: Counter[str] = Counter()
        self.bytes_fetched = 0
        self.under_way = 0  # bytes asked for or unwritten, at most UNDER_WAY_MAX
        self.sources = Sources()
        self.samples: list[TransferMeasured] = []  # of links, until they are told
        self._fetches: dict[BlobId, _Fetch] = {}
        self._by_number: dict[int, _Fetch] = {}
        self._ready: OrderedDict[BlobId, None] = OrderedDict()  # have something to do
        self._numbers = 0
        self._look_at = 0.0  # when to look for fetches that get nowhere

    def __len__(self) -> int:
        return len(self._fetches)

    def next_deadline(self, now: float) -> float | None:
        """When to call `on_deadline`, if ever; `now` is the time of the last event."""
        if not self._fetches:
            return None
        waits = self.sources.next_deadline(now)
        return self._look_at if waits is None else min(self._look_at, waits)

    # What is wanted.

    def want(
        self,
        token: int,
        blob: BlobId,
        sources: Iterable[NodeId],
        under: BlobId,
        now: float,
        *,
        lost_s: float = math.inf,
    ) -> list[Step]:
        """Fetch a blob for `token`; all who want the same blob share one fetch.

        Peers without a link are waited for `lost_s`: the longest of all who want it.
        """
        fetch = self._fetches.get(blob)
        if fetch is not None:
            fetch.tokens[token] = None
            fetch.sources.update(dict.fromkeys(sources))
            fetch.lost_s = max(fetch.lost_s, lost_s)
            return []
        size = size_of(blob)
        if size is None:
            return [FetchEnded(blob, (token,), "not the name of a blob")]
        known = dict.fromkeys(sources)
        if not known:
            return [FetchEnded(blob, (token,), "nobody is known who has it")]
        if not self._fetches:
            self._look_at = now + LOOK_S
        self._numbers += 1
        fetch = _Fetch(self._numbers, Proof(blob, size), under, now)
        fetch.tokens[token] = None
        fetch.sources.update(known)
        fetch.lost_s = lost_s
        self._look_at = min(self._look_at, self._gives_up_at(fetch))
        self._fetches[blob] = self._by_number[fetch.number] = fetch
        if not fetch.proof.top:
            return self._begin(fetch)
        fetch.is_at_disk = True
        return [MakeRoom(fetch.number, blob, next(iter(known)))]

    def _begin(self, fetch: _Fetch) -> list[Step]:
        """Ask for the top, from which all else follows."""
        fetch.is_at_disk = False
        fetch.todo.append((fetch.proof.top, 0))
        self._ready[fetch.blob] = None
        return []

    def drop(self, token: int, blob: BlobId) -> list[Step]:
        """Want a blob no more; the last who does ends its fetch."""
        fetch = self._fetches.get(blob)
        if fetch is None or token not in fetch.tokens:
            return []
        del fetch.tokens[token]
        is_finishing = fetch.is_at_disk and not fetch.left
        return [] if fetch.tokens or is_finishing else self._leave(fetch)

    def add_source(self, blob: BlobId, peer: NodeId) -> None:
        """Ask a peer for a blob, too."""
        fetch = self._fetches.get(blob)
        if fetch is not None and peer not in fetch.refused:
            fetch.sources[peer] = None

    def _end(self, fetch: _Fetch) -> None:
        del self._fetches[fetch.blob]
        del self._by_number[fetch.number]
        self._ready.pop(fetch.blob, None)
        for place, (peer, _) in fetch.asked.items():
            self.sources.get(peer).under_way -= fetch.cost(place)
            self.under_way -= fetch.cost(place)
        for index in fetch.unwritten:
            self.under_way -= fetch.cost((0, index))

    def _succeed(self, fetch: _Fetch) -> list[Step]:
        self._end(fetch)
        return [FetchEnded(fetch.blob, tuple(fetch.tokens))]

    def _leave(self, fetch: _Fetch) -> list[Step]:
        self._end(fetch)
        return [LeaveBlob(fetch.blob)] if fetch.proof.top else []

    def _fail(self, fetch: _Fetch, reason: str) -> list[Step]:
        return [
            *self._leave(fetch),
            FetchEnded(fetch.blob, tuple(fetch.tokens), reason),
        ]

    # What comes from peers.

    def on_piece(self, peer: NodeId, piece: BlobPiece, now: float) -> list[Step]:
        """Take in a piece that a peer sent."""
        fetch = self._fetches.get(piece.blob)
        place = (piece.level, piece.index)
        if fetch is None or peer not in fetch.sources:
            self.counts["unasked"] += 1  # Late, repeated, or made up.
            return []
        asked = fetch.asked.get(place)
        if asked is not None and asked[0] == peer:
            del fetch.asked[place]
            source = self.sources.get(peer)
            source.answered(fetch.cost(place), now - asked[1], now)
            if (sample := source.sample(now)) is not None:
                self.samples.append(TransferMeasured(peer, *sample))
        elif place in fetch.todo:
            # It comes after we gave it up; it is proved like any other.
            fetch.todo.remove(place)
            self.under_way += fetch.cost(place)
        else:
            self.counts["unasked"] += 1
            return []
        if piece.level > 0:
            return self._on_hashes(peer, fetch, place, piece.data, now)
        if len(piece.data) != fetch.proof.length(*place):
            return self._on_wrong(peer, fetch, place, now)
        fetch.unwritten[piece.index] = peer
        leaf = fetch.proof.leaf(*place)
        store = StorePiece(fetch.number, fetch.blob, piece.index, piece.data, leaf)
        return [store]

    def _on_hashes(
        self, peer: NodeId, fetch: _Fetch, place: Place, data: bytes, now: float
    ) -> list[Step]:
        """Fetch what is below a piece above level 0, if that is right."""
        if not fetch.proof.accepts(*place, data):
            return self._on_wrong(peer, fetch, place, now)
        fetch.progress_at = now
        self.bytes_fetched += len(data)
        self.under_way -= fetch.cost(place)
        level, index = place
        below = fetch.proof.counts[level - 1]
        first, end = index * FANOUT, min(below, (index + 1) * FANOUT)
        if level == 1 and fetch.resumed:
            leaves = b"".join(fetch.proof.leaf(0, nth) for nth in range(first, end))
            fetch.looked_for[index] = None
            return [FindPieces(fetch.number, fetch.blob, index, first, leaves)]
        fetch.todo.extend((level - 1, nth) for nth in range(first, end))
        self._ready[fetch.blob] = None
        return []

    def _on_wrong(
        self, peer: NodeId, fetch: _Fetch, place: Place, now: float
    ) -> list[Step]:
        """Believe a peer no more that sent what cannot be right."""
        self.counts["wrong"] += 1
        self.sources.distrust(peer, now)
        self._put_back(fetch, place)
        return self._give_up_on(peer, fetch, "sent bytes that are not of it")

    def on_refusal(self, peer: NodeId, refusal: PieceRefusal) -> list[Step]:
        """Ask others for a blob that a peer will not send."""
        fetch = self._fetches.get(refusal.blob)
        if fetch is None or peer not in fetch.sources:
            return []
        self.counts["refused"] += 1
        return self._give_up_on(peer, fetch, refusal.reason or "does not have it")

    def _give_up_on(self, peer: NodeId, fetch: _Fetch, why: str) -> list[Step]:
        """Ask a peer no more for this blob; fail if no peer is left."""
        for place in [p for p, (who, _) in fetch.asked.items() if who == peer]:
            del fetch.asked[place]
            self.sources.get(peer).under_way -= fetch.cost(place)
            self._put_back(fetch, place)
        fetch.sources.pop(peer, None)
        fetch.refused[peer] = why
        if fetch.sources or fetch.is_at_disk:
            return []
        return self._fail(fetch, _said(fetch))

    # What the disk says.

    def on_room(self, event: RoomMade, now: float) -> list[Step]:
        """Begin to ask, if there is room."""
        fetch = self._by_number.get(event.fetch)
        if fetch is None:  # It was dropped meanwhile.
            return [] if event.blob in self._fetches else [LeaveBlob(event.blob)]
        fetch.progress_at = now
        fetch.resumed = event.resumed
        if event.reason or not fetch.sources:
            return self._fail(fetch, event.reason or _said(fetch))
        return self._begin(fetch)

    def on_stored(self, event: PiecesStored, now: float) -> list[Step]:
        """Count stored pieces; ask other holders for pieces that were wrong."""
        fetch = self._by_number.get(event.fetch)
        if fetch is None:
            return []
        if event.reason:
            return self._fail(fetch, event.reason)
        for index in event.stored:
            del fetch.unwritten[index]
            self.under_way -= fetch.cost((0, index))
            self.bytes_fetched += fetch.proof.length(0, index)
            fetch.progress_at = now
        fetch.left -= len(event.stored)
        for index in event.wrong:
            peer = fetch.unwritten.pop(index)
            if ended := self._on_wrong(peer, fetch, (0, index), now):
                return ended
        return self._finish_if_done(fetch)

    def on_found(self, event: PiecesFound, now: float) -> list[Step]:
        """Ask only for those pieces that an earlier fetch did not leave on disk."""
        fetch = self._by_number.get(event.fetch)
        if fetch is None or event.part not in fetch.looked_for:
            return []
        del fetch.looked_for[event.part]
        fetch.progress_at = now
        here = dict.fromkeys(event.indices)
        first = event.part * FANOUT
        end = min(fetch.proof.counts[0], first + FANOUT)
        missing = [(0, nth) for nth in range(first, end) if nth not in here]
        fetch.todo.extend(missing)
        fetch.left -= end - first - len(missing)
        self._ready[fetch.blob] = None
        return self._finish_if_done(fetch)

    def _finish_if_done(self, fetch: _Fetch) -> list[Step]:
        if fetch.left:
            return []
        if not fetch.proof.top:
            return self._succeed(fetch)  # A single piece is stored as a whole.
        fetch.is_at_disk = True
        return [FinishBlob(fetch.number, fetch.blob, fetch.proof.leaves())]

    def on_finished(self, event: BlobFinished) -> list[Step]:
        """End a fetch whose blob is in the store, or could not be taken in."""
        fetch = self._by_number.get(event.fetch)
        if fetch is None:
            return []
        if event.reason:
            return self._fail(fetch, event.reason)
        return self._succeed(fetch)

    # What does not come.

    def on_link_lost(self, peer: NodeId, now: float) -> list[Step]:
        """Ask others meanwhile: what was asked of this peer will not come."""
        if peer not in self.sources:
            return []
        source = self.sources.get(peer)
        source.lost_at = now
        if self._fetches:
            self._take_back(peer)
            source.rest(now)
            concerned = [f for f in self._fetches.values() if peer in f.sources]
            self._look_at = min([self._look_at, *map(self._gives_up_at, concerned)])
        return []

    def on_link(self, peer: NodeId) -> None:
        """Wait for what was asked of a peer that can be reached again."""
        if peer in self.sources:
            self.sources.get(peer).lost_at = None

    def on_deadline(self, now: float) -> list[Step]:
        """Take back what is late; end fetches that get nowhere."""
        for peer in self.sources.late(now):
            self.counts["late"] += 1
            self._take_back(peer)
            self.sources.get(peer).was_late(now)
        if now < self._look_at:
            return []
        due = {blob: self._gives_up_at(f) for blob, f in self._fetches.items()}
        later = [at for at in due.values() if at > now]
        self._look_at = min([now + LOOK_S, *later])
        stalled = [self._fetches[blob] for blob, at in due.items() if at <= now]
        return [step for f in stalled for step in self._fail(f, _said(f))]

    def _gives_up_at(self, fetch: _Fetch) -> float:
        """When to end a fetch, if neither it nor what is ahead of it gets on."""
        if fetch.is_at_disk:
            return math.inf
        peers = [self.sources.get(peer) for peer in fetch.sources]
        heard_at = max([fetch.progress_at, *(peer.answered_at for peer in peers)])
        lost = [peer.lost_at for peer in peers if peer.lost_at is not None]
        if len(lost) < len(peers):
            return heard_at + STALL_S
        gone_at = max([fetch.progress_at, *lost])
        return min(heard_at + STALL_S, gone_at + fetch.lost_s)

    def _take_back(self, peer: NodeId) -> None:
        """Queue again all pieces that a peer was asked for."""
        for fetch in self._fetches.values():
            lost = [p for p, (who, _) in fetch.asked.items() if who == peer]
            for place in lost:
                del fetch.asked[place]
                self._put_back(fetch, place)
        self.sources.get(peer).under_way = 0

    def _put_back(self, fetch: _Fetch, place: Place) -> None:
        fetch.todo.appendleft(place)
        self.under_way -= fetch.cost(place)
        self._ready[fetch.blob] = None

    # Asking.

    def ask(self, now: float) -> list[Send]:
        """Ask for as much as peers and disk keep up with."""
        effects: list[Send] = []
        done: list[BlobId] = []
        paths: dict[NodeId, Path | None] = {}
        skipped = 0
        for blob in self._ready:
            if self.under_way >= UNDER_WAY_MAX or skipped > SKIPPED_MAX:
                break
            fetch = self._fetches[blob]
            for peer in self._near(fetch, paths, now):
                source = self.sources.get(peer)
                room = source.room(now)
                if fetch.todo and (room >= source.batch() or room >= fetch.cost_todo()):
                    effects += self._ask_of(peer, source, fetch, room, now)
            if not fetch.todo:
                done.append(blob)
            elif self.sources.any_room(now):
                skipped += 1
            else:
                break
        for blob in done:
            del self._ready[blob]
        assert self.under_way >= 0
        return effects

    def _near(
        self, fetch: _Fetch, paths: dict[NodeId, Path | None], now: float
    ) -> list[NodeId]:
        """Return whom to ask: not those that are much farther than one who answers.

        `paths` keeps what was found, for the next blob.
        """
        peers = list(fetch.sources)
        if len(peers) == 1:
            return peers
        nearest: Path | None = None
        for peer in peers:
            if peer not in paths:
                paths[peer] = self._path(peer)
            path = paths[peer]
            if path is not None and self.sources.get(peer).is_prompt(now):
                is_nearer = nearest is None or path.is_much_nearer(nearest)
                nearest = path if is_nearer else nearest
        if nearest is None:
            return peers
        return [
            peer
            for peer in peers
            if (path := paths[peer]) is None or not nearest.is_much_nearer(path)
        ]

    def _ask_of(
        self, peer: NodeId, source: Source, fetch: _Fetch, room: int, now: float
    ) -> list[Send]:
        pieces: list[Place] = []
        left = min(room, max(PIECE_BYTES_MAX, UNDER_WAY_MAX - self.under_way))
        while fetch.todo and len(pieces) < PIECES_MAX:
            cost = fetch.cost(fetch.todo[0])
            if cost > left:
                break
            left -= cost
            place = fetch.todo.popleft()
            pieces.append(place)
            fetch.asked[place] = (peer, now)
            source.asked(cost, now)
            self.under_way += cost
        if not pieces:
            return []
        wanted = PieceWanted(blob=fetch.blob, pieces=tuple(pieces), under=fetch.under)
        return [Send(peer, wanted)]


def _said(fetch: _Fetch) -> str:
    """Say who was asked for a blob in vain, and why."""
    said = [f"{peer}: {why}" for peer, why in fetch.refused.items()]
    said += [f"{peer}: did not answer" for peer in fetch.sources]
    return "; ".join(_first(said, 4)) or "nobody is known who has it"


def _first(texts: Iterable[str], most: int) -> list[str]:
    shown = list(texts)
    return shown if len(shown) <= most else [*shown[:most], f"{len(shown) - most} more"]
