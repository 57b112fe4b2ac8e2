"""API calls that one node makes at another of the same owner, for its user.

Theory of operation. The asker sends `ApiCall`, numbered upwards while a link lasts. The
answerer says at once that it is `alive`, has its API run the call, and sends each
answer as numbered `ApiPiece`s, and then the end. The asker puts the pieces together,
delivers whole answers to its client, and sends an `ApiReceipt` for what the client has
read.

- Order: a piece that was seen before is left out. A piece after a gap breaks the call,
  because the link keeps order and what it lost is gone. The client then hears
  `broken`, and may ask again. Whatever happens, a client hears one end.
- Window: at most `AHEAD_MAX` pieces are under way before a receipt. A slow reader holds
  up the writer: the API is asked for its next answer (`ContinueCall`) when the last one
  has left, so the answerer keeps one answer of a call at most.
- Silence: the answerer says `alive` every `BEAT_S`, and the asker answers each with a
  receipt. A side that hears nothing for `SILENT_S` gives the call up. An asker that
  never heard anything gives up after `HEARD_S`: old versions know no such calls.
- Stop: a client that leaves sends a receipt with `stop`; so does an asker that gets a
  piece for a call it does not know. A lost link ends all its calls on both sides.
- Rights: the roster is asked when a call comes, before each piece and at each beat. A
  peer of another owner gets an error from the API and its call is not run. A peer whose
  grant expired or was revoked is refused. Rights per method are the API's business.

Nothing is durable. A peer has at most `CALLS_PER_PEER_MAX` calls open here, all peers
`CALLS_MAX`; clients have `ASKED_MAX` open elsewhere.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.core.events import (
    DeadlineReached,
    Effect,
    Event,
    MessageReceived,
    PeerConnected,
    PeerLost,
    Send,
)
from shoal.core.forwarding.events import (
    AnswerTaken,
    CallAbandoned,
    CallAnswered,
    CallAsked,
    ContinueCall,
    DeliverAnswer,
    EndCall,
    RefuseCall,
    RunCall,
    StopCall,
)
from shoal.core.machine import Mount
from shoal.protocol.forwarding import ApiCall, ApiPiece, ApiReceipt, PieceKind
from shoal.protocol.limits import OUTPUT_BYTES_MAX
from shoal.protocol.messages import Goodbye

if TYPE_CHECKING:
    from shoal.core.forwarding.events import EndKind
    from shoal.core.membership.roster import Roster
    from shoal.model.ids import NodeId, OwnerId
    from shoal.protocol.messages import AnyMessage

AHEAD_MAX: Final = 8
"""Pieces of one call that are under way."""

RECEIPT_EVERY: Final = AHEAD_MAX // 2
CALLS_PER_PEER_MAX: Final = 16
CALLS_MAX: Final = 256
"""Calls that are open here, of all peers together."""

ASKED_MAX: Final = 256
"""Calls that clients of this node have under way elsewhere."""

ANSWER_BYTES_MAX: Final = 64 << 20
"""One answer, put together: as much as a client on this machine takes."""

BEAT_S: Final = 10.0
SILENT_S: Final = 3.5 * BEAT_S
HEARD_S: Final = 5.0


class _Served(msgspec.Struct):
    """A call of a peer that is answered here."""

    peer: NodeId
    number: int
    heard_at: float
    sent: int = 0
    taken: int = 0
    outbox: deque[tuple[PieceKind, bytes]] = msgspec.field(
        default_factory=deque[tuple[PieceKind, bytes]]
    )


class _Asked(msgspec.Struct):
    """A call of a client that is answered elsewhere."""

    token: int
    gives_up_at: float
    heard: bool = False  # whether the other side has said anything
    next_seq: int = 0
    taken: int = 0  # pieces that were read
    told: int = 0  # pieces that the other side knows were read
    parts: list[bytes] = []
    size: int = 0


_Key = tuple["NodeId", int]


@final
class CallForwarding:
    """Decides who may call the API here, and carries calls both ways."""

    mount = Mount(
        takes={ApiCall: None, ApiPiece: None, ApiReceipt: None},
        hears=(CallAsked, AnswerTaken, CallAbandoned, CallAnswered),
    )

    def __init__(self, roster: Roster, owner: OwnerId | None) -> None:
        """Answer nodes of `owner` that the roster knows; None: answer nobody."""
        self.counts: Counter[str] = Counter()
        self._roster = roster
        self._owner = owner
        self._linked: dict[NodeId, int] = {}  # the last number that each has used
        self._served: dict[int, _Served] = {}  # by run; at most CALLS_MAX
        self._runs: dict[_Key, int] = {}  # of the calls that are served
        self._asked: dict[_Key, _Asked] = {}  # at most ASKED_MAX
        self._keys: dict[int, _Key] = {}  # of the calls that are asked, by token
        self._number = 0
        self._run = 0
        self._beat_at: float | None = None

    @property
    def open(self) -> int:
        """How many calls of peers are open here."""
        return len(self._served)

    def is_linked(self, peer: NodeId) -> bool:
        """Whether a peer can be asked now."""
        return peer in self._linked

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take in one fact; return what to do about it, in order. Raising is a bug."""
        match event:
            case MessageReceived():
                return self._on_message(event.peer, event.message, now)
            case CallAsked():
                return self._on_asked(event, now)
            case AnswerTaken():
                return self._on_taken(event.token)
            case CallAbandoned():
                return self._on_abandoned(event.token)
            case CallAnswered():
                return self._on_answered(event, now)
            case DeadlineReached():
                return self._on_deadline(now)
            case PeerConnected():
                effects = self._part(event.peer)  # What the last link carried is lost.
                self._linked[event.peer] = -1
                return effects
            case PeerLost():
                self._linked.pop(event.peer, None)
                return self._part(event.peer)
            case _:
                return []  # A fact for another machine of this node.

    def next_deadline(self) -> float | None:
        """When to deliver `DeadlineReached`, if ever."""
        if self._beat_at is None and not self._asked:
            return None
        due = [asked.gives_up_at for asked in self._asked.values()]
        return min(due if self._beat_at is None else [self._beat_at, *due])

    def _on_message(
        self, peer: NodeId, message: AnyMessage, now: float
    ) -> list[Effect]:
        match message:
            case ApiCall():
                return self._on_call(peer, message, now)
            case ApiReceipt():
                return self._on_receipt(peer, message, now)
            case ApiPiece():
                return self._on_piece(peer, message, now)
            case Goodbye():
                return self._end_if_void(peer, now)
            case _:
                return []  # The rack hands on nothing else.

    def _on_deadline(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for key, asked in list(self._asked.items()):
            if asked.gives_up_at <= now:
                effects += self._break_off(key, _silence(asked))
        if self._beat_at is not None and self._beat_at <= now:
            effects += self._beat(now)
        return effects

    def _part(self, peer: NodeId) -> list[Effect]:
        """End all calls of a link that was lost or replaced."""
        served = [run for run, call in self._served.items() if call.peer == peer]
        asked = [key for key in self._asked if key[0] == peer]
        why = "the link to it broke"
        return [
            *(self._forget(run) for run in served),
            *(self._end(key, "broken", reason=why) for key in asked),
        ]

    # Answering.

    def _on_call(self, peer: NodeId, call: ApiCall, now: float) -> list[Effect]:
        if peer not in self._linked or call.number <= self._linked[peer]:
            self.counts["calls again"] += 1
            return []
        self._linked[peer] = call.number
        same = sum(one.peer == peer for one in self._served.values())
        if same >= CALLS_PER_PEER_MAX or len(self._served) >= CALLS_MAX:
            self.counts["calls refused, too many"] += 1
            reason = f"{CALLS_PER_PEER_MAX} calls are open, which is the most"
            refusal = ApiPiece(number=call.number, seq=0, kind="refusal", reason=reason)
            return [Send(peer, refusal)]
        self.counts["calls answered"] += 1
        self._run += 1
        served = self._served[self._run] = _Served(peer, call.number, now)
        self._runs[peer, call.number] = self._run
        if self._beat_at is None:
            self._beat_at = now + BEAT_S
        caller = self._roster.recall(peer, now)
        if isinstance(caller, str):
            return self._refuse(self._run, caller)
        if self._is_ours(caller.owner):
            run: Effect = RunCall(self._run, caller, call.method, call.request)
        else:
            run = RefuseCall(self._run, caller, call.method)
        return [_piece(served, "alive"), run]

    def _is_ours(self, owner: OwnerId) -> bool:
        return owner == self._owner

    def _on_receipt(
        self, peer: NodeId, receipt: ApiReceipt, now: float
    ) -> list[Effect]:
        run = self._runs.get((peer, receipt.number))
        if run is None:
            # Stops often come late: a client that has enough hangs up.
            late = "stops too late" if receipt.stop else "receipts for nothing"
            self.counts[late] += 1
            return []
        if receipt.stop:
            return [self._forget(run)]
        served = self._served[run]
        if receipt.taken > served.sent:
            self.counts["receipts for nothing"] += 1
            return []
        served.taken = max(served.taken, receipt.taken)
        served.heard_at = now
        return self._flush(run, served, now) if served.outbox else []

    def _on_answered(self, event: CallAnswered, now: float) -> list[Effect]:
        served = self._served.get(event.run)
        if served is None:
            return []  # It was stopped meanwhile.
        if event.kind == "bug":
            return self._refuse(event.run, event.reason)
        if event.kind == "end":
            served.outbox.append(("end", b""))
        else:
            served.outbox.extend(_cut(event.kind, event.data))
        return self._flush(event.run, served, now)

    def _flush(self, run: int, served: _Served, now: float) -> list[Effect]:
        """Send as much as the asker has room for, if it may still have it."""
        if isinstance(reason := self._roster.recall(served.peer, now), str):
            return self._refuse(run, reason)
        effects: list[Effect] = []
        while served.outbox:
            kind, data = served.outbox[0]
            if kind != "end" and served.sent - served.taken >= AHEAD_MAX:
                return effects
            served.outbox.popleft()
            effects.append(_piece(served, kind, data))
            if kind in ("end", "error"):
                self._forget(run)
                return effects
            served.sent += 1
        return [*effects, ContinueCall(run)]

    def _beat(self, now: float) -> list[Effect]:
        """Keep calls alive; end calls that nobody follows."""
        effects: list[Effect] = []
        for run, served in list(self._served.items()):
            if now - served.heard_at > SILENT_S:
                self.counts["calls ended, silent"] += 1
                effects.append(self._forget(run))
            elif isinstance(reason := self._roster.recall(served.peer, now), str):
                effects += self._refuse(run, reason)
            else:
                effects.append(_piece(served, "alive"))
        self._beat_at = now + BEAT_S if self._served else None
        return effects

    def _end_if_void(self, peer: NodeId, now: float) -> list[Effect]:
        """End the calls of a peer that was just revoked."""
        reason = self._roster.recall(peer, now)
        if not isinstance(reason, str):
            return []
        effects: list[Effect] = []
        for run, served in list(self._served.items()):
            if served.peer == peer:
                effects += self._refuse(run, reason)
        return effects

    def _refuse(self, run: int, reason: str) -> list[Effect]:
        self.counts["calls refused"] += 1
        refusal = _piece(self._served[run], "refusal", reason=reason)
        return [refusal, self._forget(run)]

    def _forget(self, run: int) -> Effect:
        served = self._served.pop(run)
        del self._runs[served.peer, served.number]
        return StopCall(run)

    # Asking.

    def _on_asked(self, event: CallAsked, now: float) -> list[Effect]:
        if event.peer not in self._linked:
            return [EndCall(event.token, "broken", reason="there is no link to it")]
        if len(self._asked) >= ASKED_MAX:
            return [EndCall(event.token, "full")]
        self._number += 1
        key = (event.peer, self._number)
        self._asked[key] = _Asked(event.token, now + HEARD_S)
        self._keys[event.token] = key
        call = ApiCall(number=key[1], method=event.method, request=event.request)
        return [Send(event.peer, call)]

    def _on_taken(self, token: int) -> list[Effect]:
        key = self._keys.get(token)
        if key is None:
            return []  # The call has ended: nobody wants a receipt.
        asked = self._asked[key]
        asked.taken += 1
        return self._receipt_if_due(key, asked)

    def _on_abandoned(self, token: int) -> list[Effect]:
        key = self._keys.pop(token, None)
        if key is None:
            return []
        asked = self._asked.pop(key)
        return [_receipt(key, asked, stop=True)]

    def _on_piece(self, peer: NodeId, piece: ApiPiece, now: float) -> list[Effect]:
        key = (peer, piece.number)
        asked = self._asked.get(key)
        if asked is None:
            self.counts["pieces for nobody"] += 1
            if piece.kind in ("part", "message", "alive"):
                stop = ApiReceipt(number=piece.number, taken=0, stop=True)
                return [Send(peer, stop)]
            return []
        asked.heard, asked.gives_up_at = True, now + SILENT_S
        if piece.seq < asked.next_seq:
            self.counts["pieces out of turn"] += 1
            return []
        if piece.seq > asked.next_seq:
            self.counts["pieces out of turn"] += 1
            return self._break_off(key, "a part of the answer was lost on the way")
        match piece.kind:
            case "part" | "message" | "error":
                return self._add(key, asked, piece)
            case "end":
                return [self._end(key, "end")]
            case "refusal":
                return [self._end(key, "refusal", reason=piece.reason)]
            case "alive":
                return [_receipt(key, asked)]

    def _add(self, key: _Key, asked: _Asked, piece: ApiPiece) -> list[Effect]:
        if asked.next_seq - asked.told >= AHEAD_MAX:
            return self._break_off(key, "it said more than it was asked to")
        asked.next_seq += 1
        asked.size += len(piece.data)
        if asked.size > ANSWER_BYTES_MAX:
            limit = f"one answer has more than {ANSWER_BYTES_MAX >> 20} MiB"
            return self._break_off(key, limit)
        asked.parts.append(piece.data)
        if piece.kind == "part":
            asked.taken += 1
            return self._receipt_if_due(key, asked)
        whole, asked.parts, asked.size = b"".join(asked.parts), [], 0
        if piece.kind == "error":
            return [self._end(key, "error", whole)]
        return [DeliverAnswer(asked.token, whole)]

    def _receipt_if_due(self, key: _Key, asked: _Asked) -> list[Effect]:
        due = asked.taken - asked.told >= RECEIPT_EVERY
        return [_receipt(key, asked)] if due else []

    def _break_off(self, key: _Key, reason: str) -> list[Effect]:
        stop = _receipt(key, self._asked[key], stop=True)
        return [stop, self._end(key, "broken", reason=reason)]

    def _end(
        self,
        key: _Key,
        kind: EndKind,
        data: bytes = b"",
        reason: str = "",
    ) -> EndCall:
        asked = self._asked.pop(key)
        del self._keys[asked.token]
        return EndCall(asked.token, kind, data, reason)


def _silence(asked: _Asked) -> str:
    if asked.heard:
        return f"nothing came from it for {SILENT_S:g} s"
    old = "it may run an older shoal, which cannot do this"
    return f"nothing came from it for {HEARD_S:g} s; {old}"


def _receipt(key: _Key, asked: _Asked, *, stop: bool = False) -> Send:
    asked.told = asked.taken
    return Send(key[0], ApiReceipt(number=key[1], taken=asked.taken, stop=stop))


def _piece(
    served: _Served, kind: PieceKind, data: bytes = b"", reason: str = ""
) -> Send:
    seq, number = served.sent, served.number
    piece = ApiPiece(number=number, seq=seq, kind=kind, data=data, reason=reason)
    return Send(served.peer, piece)


def _cut(kind: PieceKind, data: bytes) -> list[tuple[PieceKind, bytes]]:
    """Return an answer in pieces, of which the last says what it is."""
    size = OUTPUT_BYTES_MAX
    parts = [data[begin : begin + size] for begin in range(0, len(data) or 1, size)]
    last = parts.pop()
    return [*(("part", part) for part in parts), (kind, last)]
