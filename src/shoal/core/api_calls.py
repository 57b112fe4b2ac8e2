"""Calls that nodes make at each other's API: which are open, and how far they are.

The asker opens a call, the other side answers it in pieces. These are numbered, and no
more than `AHEAD_MAX` are under way before the asker has said that it took some. So a
slow reader holds up whoever writes, and neither a link nor a node fills up with what
nobody reads. Whatever a peer says out of turn changes nothing, and is counted.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Final, Literal, final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shoal.model.ids import NodeId
    from shoal.protocol.api_calls import ApiPiece

AHEAD_MAX: Final = 8
"""Pieces of one call that are under way."""

RECEIPT_EVERY: Final = AHEAD_MAX // 2
CALLS_PER_PEER_MAX: Final = 16
CALLS_MAX: Final = 256
"""Calls that are open here, of all peers together."""

ANSWER_BYTES_MAX: Final = 64 << 20
"""One answer, put together: as much as a client on this machine takes."""

BEAT_S: Final = 10.0
"""How often whoever answers says that it still does."""

SILENT_S: Final = 3.5 * BEAT_S
"""Who has not been heard of for so long is given up."""

Key = tuple["NodeId", int]


class Opened(msgspec.Struct):
    """A call that is answered here."""

    heard_at: float
    sent: int = 0
    taken: int = 0

    @property
    def has_room(self) -> bool:
        """Whether one more piece may be sent."""
        return self.sent - self.taken < AHEAD_MAX


@final
class OpenCalls:
    """The calls that peers have opened here."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._open: dict[Key, Opened] = {}  # At most CALLS_MAX.
        self._last: dict[NodeId, int] = {}  # Of those who are linked, and asked.

    def __iter__(self) -> Iterator[Key]:
        return iter(list(self._open))

    def __len__(self) -> int:
        return len(self._open)

    def __getitem__(self, key: Key) -> Opened:
        return self._open[key]

    def open(
        self, peer: NodeId, number: int, now: float
    ) -> Literal["opened", "again", "full"]:
        """Note that a peer asks; one that was heard of before is never run again."""
        if number <= self._last.get(peer, -1):
            self.counts["calls again"] += 1
            return "again"
        self._last[peer] = number
        same = sum(one == peer for one, _ in self._open)
        if same >= CALLS_PER_PEER_MAX or len(self._open) >= CALLS_MAX:
            self.counts["calls refused, too many"] += 1
            return "full"
        self._open[peer, number] = Opened(now)
        self.counts["calls answered"] += 1
        return "opened"

    def take(self, peer: NodeId, number: int, taken: int, now: float) -> bool:
        """Note what a peer has taken; return whether it is a call that is open."""
        one = self._open.get((peer, number))
        if one is None or taken > one.sent:
            self.counts["receipts for nothing"] += 1
            return False
        one.taken = max(one.taken, taken)
        one.heard_at = now
        return True

    def end(self, key: Key) -> None:
        """Forget a call."""
        self._open.pop(key, None)

    def part(self, peer: NodeId) -> list[Key]:
        """Return the calls of a peer, whose link is gone: it may count anew."""
        self._last.pop(peer, None)
        return [key for key in self._open if key[0] == peer]

    def silent(self, now: float) -> list[Key]:
        """Return the calls whose askers have not been heard of for too long."""
        return [key for key, one in self._open.items() if now - one.heard_at > SILENT_S]


class End(msgspec.Struct, frozen=True):
    """How a call ended: as it should, by an error of the other side, or broken."""

    kind: Literal["end", "error", "refusal", "broken"]
    data: bytes = b""
    reason: str = ""


@final
class Answers:
    """What has come of one call that was asked: pieces, put together to answers."""

    def __init__(self) -> None:
        self.heard = False  # whether the other side has said anything
        self.end: End | None = None  # when it is set, nothing more comes
        self.taken = 0
        self._told = 0
        self._next = 0
        self._parts: list[bytes] = []
        self._size = 0
        self._ready: deque[bytes] = deque()  # At most AHEAD_MAX.

    def __len__(self) -> int:
        return len(self._ready)

    def put(self, piece: ApiPiece) -> bool:
        """Take a piece; return whether it is one that was to come."""
        if self.end is not None or piece.seq < self._next:
            return False
        self.heard = True
        if piece.seq > self._next:
            self.end = End("broken", reason="a part of the answer was lost on the way")
            return False
        match piece.kind:
            case "part" | "message" | "error":
                return self._add(piece)
            case "end":
                self.end = End("end")
            case "refusal":
                self.end = End("refusal", reason=piece.reason)
            case "alive":
                pass
        return True

    def pop(self) -> bytes:
        """Take the next answer that is whole."""
        self.taken += 1
        return self._ready.popleft()

    def break_off(self, reason: str) -> None:
        """Let nothing more come."""
        if self.end is None:
            self.end = End("broken", reason=reason)

    def is_receipt_due(self) -> bool:
        """Whether the other side may wait to hear how much was taken."""
        return self.taken - self._told >= RECEIPT_EVERY

    def receipt(self) -> int:
        """Return how much was taken, which is told now."""
        self._told = self.taken
        return self.taken

    def _add(self, piece: ApiPiece) -> bool:
        if self._next - self._told >= AHEAD_MAX:
            self.break_off("it said more than it was asked to")
            return False
        self._next += 1
        self._size += len(piece.data)
        if self._size > ANSWER_BYTES_MAX:
            self.break_off(f"one answer has more than {ANSWER_BYTES_MAX >> 20} MiB")
            return False
        self._parts.append(piece.data)
        if piece.kind == "part":
            self.taken += 1
            return True
        whole, self._parts, self._size = b"".join(self._parts), [], 0
        if piece.kind == "error":
            self.end = End("error", data=whole)
        else:
            self._ready.append(whole)
        return True
