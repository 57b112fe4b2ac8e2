"""Fetch blobs from peers: which piece to ask of whom, and when.

The machine is told which peers may have a blob, and asks all of them at once, each at
its own pace. The pace follows delay: while answers come quickly more is asked for, and
less as soon as they queue up somewhere, so that other messages on the same link need
not wait. Every piece is verified as it comes. A peer that sends a wrong piece is not
believed again; a peer that does not answer is left alone for a while.

A machine like the ones in `core`: facts in, effects out, no clock and no I/O.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from typing import TYPE_CHECKING, Final, assert_never, final

import msgspec

from shoal.blobs.hashing import FANOUT, Proof, size_of
from shoal.blobs.sources import ROOM_MIN, Source, Sources
from shoal.model.ids import BlobId, NodeId
from shoal.protocol.blobs import BlobPiece, PieceRefusal, PieceWanted
from shoal.protocol.limits import PIECE_BYTES_MAX, PIECES_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable

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


# Events.


class Wanted(msgspec.Struct, frozen=True):
    """A blob is wanted here, which these peers may have, the best first.

    `resumed`: an earlier life, or an earlier fetch, may have left some of it on disk.
    """

    blob: BlobId
    sources: tuple[NodeId, ...]
    under: BlobId = BlobId("")
    resumed: bool = False


class Unwanted(msgspec.Struct, frozen=True):
    """A blob is no longer wanted here."""

    blob: BlobId


class SourcesFound(msgspec.Struct, frozen=True):
    """These peers have a blob that is wanted too."""

    blob: BlobId
    sources: tuple[NodeId, ...]


class PieceCame(msgspec.Struct, frozen=True):
    """A peer sent a piece."""

    peer: NodeId
    piece: BlobPiece


class PieceRefused(msgspec.Struct, frozen=True):
    """A peer said that it will not send a blob."""

    peer: NodeId
    refusal: PieceRefusal


class PiecesWritten(msgspec.Struct, frozen=True):
    """These pieces of a blob are on disk now."""

    blob: BlobId
    indices: tuple[int, ...]


class PiecesFound(msgspec.Struct, frozen=True):
    """Of the pieces under one of level 1, these were on disk already."""

    blob: BlobId
    part: int
    indices: tuple[int, ...]


class LinkLost(msgspec.Struct, frozen=True):
    """The link to a peer is down: what was asked of it will not come."""

    peer: NodeId


class TimePassed(msgspec.Struct, frozen=True):
    """The machine's `next_deadline` has come."""


Event = (
    Wanted
    | Unwanted
    | SourcesFound
    | PieceCame
    | PieceRefused
    | PiecesWritten
    | PiecesFound
    | LinkLost
    | TimePassed
)

# Effects.


class PieceAsk(msgspec.Struct, frozen=True):
    """Ask a peer for pieces."""

    peer: NodeId
    message: PieceWanted


class WritePiece(msgspec.Struct, frozen=True):
    """Write a proved piece of level 0; answered by `PiecesWritten`."""

    blob: BlobId
    index: int
    data: bytes


class LookForPieces(msgspec.Struct, frozen=True):
    """Say which pieces from `first` on are on disk; answered by `PiecesFound`."""

    blob: BlobId
    part: int
    first: int
    leaves: bytes


class Finish(msgspec.Struct, frozen=True):
    """All of a blob is written."""

    blob: BlobId
    leaves: bytes


class Fail(msgspec.Struct, frozen=True):
    """A blob cannot be had, for this reason."""

    blob: BlobId
    reason: str


Effect = PieceAsk | WritePiece | LookForPieces | Finish | Fail


@final
class _Fetch:
    """A blob on its way. A piece is to do, asked for, unwritten, or done."""

    def __init__(self, event: Wanted, size: int, now: float) -> None:
        self.proof = Proof(event.blob, size)
        self.under = event.under
        self.resumed = event.resumed
        self.sources = dict.fromkeys(event.sources)
        self.todo: deque[Place] = deque([(self.proof.top, 0)])
        self.asked: dict[Place, tuple[NodeId, float]] = {}
        self.unwritten: set[int] = set()
        self.looked_for: set[int] = set()  # pieces of level 1
        self.left = self.proof.counts[0]  # pieces of level 0 that are not done
        self.refused: dict[NodeId, str] = {}
        self.progress_at = now

    def cost(self, place: Place) -> int:
        """Return what a piece counts while it is under way."""
        return max(ROOM_MIN, self.proof.length(*place))

    def cost_todo(self) -> int:
        """Return about what all pieces count that are to be asked for."""
        return self.cost(self.todo[0]) * len(self.todo)


@final
class Transfers:
    """All that one node fetches. `bytes_fetched` counts what came and was right."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.bytes_fetched = 0
        self._fetches: dict[BlobId, _Fetch] = {}
        self._ready: OrderedDict[BlobId, None] = OrderedDict()  # have something to do
        self._sources = Sources()
        self._under_way = 0
        self._now = 0.0  # of the last event
        self._look_at = 0.0  # when to look for fetches that get nowhere

    def __len__(self) -> int:
        return len(self._fetches)

    def left(self, blob: BlobId) -> int:
        """Return how many pieces of a blob are still to come."""
        fetch = self._fetches.get(blob)
        return 0 if fetch is None else fetch.left

    @property
    def sources(self) -> Sources:
        """What is known of the peers."""
        return self._sources

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take in one fact; return what to do about it. Raising is a bug."""
        match event:
            case Wanted():
                effects = self._on_wanted(event, now)
            case Unwanted():
                effects = self._on_unwanted(event.blob)
            case SourcesFound():
                effects = self._on_sources_found(event)
            case PieceCame():
                effects = self._on_piece(event.peer, event.piece, now)
            case PieceRefused():
                effects = self._on_refusal(event.peer, event.refusal)
            case PiecesWritten():
                effects = self._on_written(event, now)
            case PiecesFound():
                effects = self._on_found(event, now)
            case LinkLost():
                effects = self._on_link_lost(event.peer, now)
            case TimePassed():
                effects = self._on_time(now)
            case _:
                assert_never(event)
        effects += self._ask(now)
        self._now = now
        assert self._under_way >= 0
        return effects

    def next_deadline(self) -> float | None:
        """When to deliver `TimePassed`, if ever."""
        if not self._fetches:
            return None
        waits = self._sources.next_deadline(self._now)
        return self._look_at if waits is None else min(self._look_at, waits)

    # What is wanted.

    def _on_wanted(self, event: Wanted, now: float) -> list[Effect]:
        known = self._fetches.get(event.blob)
        if known is not None:
            return self._on_sources_found(SourcesFound(event.blob, event.sources))
        size = size_of(event.blob)
        if size is None:
            return [Fail(event.blob, "not the name of a blob")]
        if not event.sources:
            return [Fail(event.blob, "nobody is known who has it")]
        if not self._fetches:
            self._look_at = now + LOOK_S
        self._fetches[event.blob] = _Fetch(event, size, now)
        self._ready[event.blob] = None
        return []

    def _on_unwanted(self, blob: BlobId) -> list[Effect]:
        self._end(blob)
        return []

    def _on_sources_found(self, event: SourcesFound) -> list[Effect]:
        fetch = self._fetches.get(event.blob)
        if fetch is not None:
            fetch.sources.update(dict.fromkeys(event.sources))
        return []

    def _end(self, blob: BlobId) -> None:
        fetch = self._fetches.pop(blob, None)
        if fetch is None:
            return
        self._ready.pop(blob, None)
        for place, (peer, _) in fetch.asked.items():
            self._sources.get(peer).under_way -= fetch.cost(place)
            self._under_way -= fetch.cost(place)
        for index in fetch.unwritten:
            self._under_way -= fetch.cost((0, index))

    # What comes.

    def _on_piece(self, peer: NodeId, piece: BlobPiece, now: float) -> list[Effect]:
        fetch = self._fetches.get(piece.blob)
        place = (piece.level, piece.index)
        if fetch is None or peer not in fetch.sources:
            self.counts["unasked"] += 1  # Late, repeated, or made up.
            return []
        asked = fetch.asked.get(place)
        if asked is None or asked[0] != peer:
            return self._on_late_piece(fetch, place, piece.data, now)
        del fetch.asked[place]
        self._sources.get(peer).answered(fetch.cost(place), now - asked[1], now)
        if not fetch.proof.accepts(piece.level, piece.index, piece.data):
            return self._on_wrong(peer, fetch, place, now)
        return self._on_right(fetch, place, piece.data, now)

    def _on_late_piece(
        self, fetch: _Fetch, place: Place, data: bytes, now: float
    ) -> list[Effect]:
        """Take what comes after we gave it up, if we still want it; it is proved."""
        asked = fetch.asked.get(place)
        is_wanted = asked is not None or place in fetch.todo
        if not is_wanted or not fetch.proof.accepts(*place, data):
            self.counts["unasked"] += 1
            return []
        if asked is not None:
            del fetch.asked[place]
            self._sources.get(asked[0]).under_way -= fetch.cost(place)
        else:
            fetch.todo.remove(place)
            self._under_way += fetch.cost(place)
        return self._on_right(fetch, place, data, now)

    def _on_right(
        self, fetch: _Fetch, place: Place, data: bytes, now: float
    ) -> list[Effect]:
        level, index = place
        fetch.progress_at = now
        self.bytes_fetched += len(data)
        if level > 0:
            self._under_way -= fetch.cost(place)
            return self._go_down(fetch, place)
        fetch.unwritten.add(index)
        return [WritePiece(fetch.proof.blob, index, data)]

    def _on_wrong(
        self, peer: NodeId, fetch: _Fetch, place: Place, now: float
    ) -> list[Effect]:
        """Believe a peer no more that sent what cannot be right."""
        self.counts["wrong"] += 1
        self._sources.distrust(peer, now)
        self._put_back(fetch, place)
        return self._give_up_on(peer, fetch, "sent bytes that are not of it")

    def _go_down(self, fetch: _Fetch, place: Place) -> list[Effect]:
        """Fetch what is below a piece that is proved now."""
        level, index = place
        below = fetch.proof.counts[level - 1]
        first, end = index * FANOUT, min(below, (index + 1) * FANOUT)
        if level == 1 and fetch.resumed:
            leaves = b"".join(
                fetch.proof.leaf(0, number) or b"" for number in range(first, end)
            )
            fetch.looked_for.add(index)
            return [LookForPieces(fetch.proof.blob, index, first, leaves)]
        fetch.todo.extend((level - 1, number) for number in range(first, end))
        self._ready[fetch.proof.blob] = None
        return []

    def _on_found(self, event: PiecesFound, now: float) -> list[Effect]:
        fetch = self._fetches.get(event.blob)
        if fetch is None or event.part not in fetch.looked_for:
            return []
        fetch.looked_for.discard(event.part)
        fetch.progress_at = now
        here = set(event.indices)
        first = event.part * FANOUT
        end = min(fetch.proof.counts[0], first + FANOUT)
        missing = [(0, number) for number in range(first, end) if number not in here]
        fetch.todo.extend(missing)
        fetch.left -= end - first - len(missing)
        self._ready[event.blob] = None
        return self._finish_if_done(fetch)

    def _on_written(self, event: PiecesWritten, now: float) -> list[Effect]:
        fetch = self._fetches.get(event.blob)
        if fetch is None:
            return []
        # An earlier fetch of the same blob may have left others to be written.
        written = fetch.unwritten.intersection(event.indices)
        fetch.unwritten -= written
        fetch.left -= len(written)
        self._under_way -= sum(fetch.cost((0, index)) for index in written)
        fetch.progress_at = now
        return self._finish_if_done(fetch)

    def _finish_if_done(self, fetch: _Fetch) -> list[Effect]:
        if fetch.left:
            return []
        blob, leaves = fetch.proof.blob, fetch.proof.leaves()
        self._end(blob)
        return [Finish(blob, leaves)]

    # What does not come.

    def _on_refusal(self, peer: NodeId, refusal: PieceRefusal) -> list[Effect]:
        fetch = self._fetches.get(refusal.blob)
        if fetch is None or peer not in fetch.sources:
            return []
        self.counts["refused"] += 1
        for place in [p for p, (who, _) in fetch.asked.items() if who == peer]:
            del fetch.asked[place]
            self._sources.get(peer).under_way -= fetch.cost(place)
            self._put_back(fetch, place)
        return self._give_up_on(peer, fetch, refusal.reason or "does not have it")

    def _give_up_on(self, peer: NodeId, fetch: _Fetch, why: str) -> list[Effect]:
        """Ask a peer no more for this blob; fail if no peer is left."""
        fetch.sources.pop(peer, None)
        fetch.refused[peer] = why
        if fetch.sources:
            return []
        self._end(fetch.proof.blob)
        return [Fail(fetch.proof.blob, _said(fetch))]

    def _on_link_lost(self, peer: NodeId, now: float) -> list[Effect]:
        self._take_back(peer)
        self._sources.get(peer).rest(now)
        return []

    def _on_time(self, now: float) -> list[Effect]:
        for peer in self._sources.late(now):
            self.counts["late"] += 1
            self._take_back(peer)
            self._sources.get(peer).was_late(now)
        if now < self._look_at:
            return []
        self._look_at = now + LOOK_S
        stalled = [f for f in self._fetches.values() if self._is_stalled(f, now)]
        for fetch in stalled:
            self._end(fetch.proof.blob)
        return [Fail(fetch.proof.blob, _said(fetch)) for fetch in stalled]

    def _is_stalled(self, fetch: _Fetch, now: float) -> bool:
        """Whether neither it nor what is ahead of it gets anywhere."""
        heard = (self._sources.get(peer).answered_at for peer in fetch.sources)
        return now - max(fetch.progress_at, *heard) >= STALL_S

    def _take_back(self, peer: NodeId) -> None:
        """Count on nothing that a peer was asked for."""
        for fetch in self._fetches.values():
            lost = [p for p, (who, _) in fetch.asked.items() if who == peer]
            for place in lost:
                del fetch.asked[place]
                self._put_back(fetch, place)
        self._sources.get(peer).under_way = 0

    def _put_back(self, fetch: _Fetch, place: Place) -> None:
        fetch.todo.appendleft(place)
        self._under_way -= fetch.cost(place)
        self._ready[fetch.proof.blob] = None

    # Asking.

    def _ask(self, now: float) -> list[Effect]:
        """Ask for as much as peers and disk keep up with."""
        effects: list[Effect] = []
        done: list[BlobId] = []
        skipped = 0
        for blob in self._ready:
            if self._under_way >= UNDER_WAY_MAX or skipped > SKIPPED_MAX:
                break
            fetch = self._fetches[blob]
            for peer in fetch.sources:
                source = self._sources.get(peer)
                room = source.room(now)
                if fetch.todo and (room >= source.batch() or room >= fetch.cost_todo()):
                    effects += self._ask_of(peer, source, fetch, room, now)
            if not fetch.todo:
                done.append(blob)
            elif self._sources.any_room(now):
                skipped += 1
            else:
                break
        for blob in done:
            del self._ready[blob]
        return effects

    def _ask_of(
        self, peer: NodeId, source: Source, fetch: _Fetch, room: int, now: float
    ) -> list[Effect]:
        pieces: list[Place] = []
        left = min(room, max(PIECE_BYTES_MAX, UNDER_WAY_MAX - self._under_way))
        while fetch.todo and len(pieces) < PIECES_MAX:
            cost = fetch.cost(fetch.todo[0])
            if cost > left:
                break
            left -= cost
            place = fetch.todo.popleft()
            pieces.append(place)
            fetch.asked[place] = (peer, now)
            source.asked(cost, now)
            self._under_way += cost
        if not pieces:
            return []
        blob = fetch.proof.blob
        wanted = PieceWanted(blob=blob, pieces=tuple(pieces), under=fetch.under)
        return [PieceAsk(peer, wanted)]


def _said(fetch: _Fetch) -> str:
    """Say who was asked for a blob in vain, and why."""
    said = [f"{peer}: {why}" for peer, why in fetch.refused.items()]
    said += [f"{peer}: did not answer" for peer in fetch.sources]
    return "; ".join(_first(said, 4)) or "nobody is known who has it"


def _first(texts: Iterable[str], most: int) -> list[str]:
    shown = list(texts)
    return shown if len(shown) <= most else [*shown[:most], f"{len(shown) - most} more"]
