"""The queue of messages for one peer: bounded, ordered, with a rule for overflow.

Metrics and output of tasks are soft: any may be lost, and the next one says more. They
get at most half of the room, and the newest of them are dropped first when other
messages need it. Other messages are dropped only when the queue is full of them.

Pieces of blobs are many, and the receiver asks again for a lost one. They leave after
everything else and are dropped first. The same holds for pieces of forwarded API
answers: people wait for these, not machines.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Final, Literal, final

from shoal.protocol.blobs import BlobPiece
from shoal.protocol.forwarding import ApiPiece
from shoal.protocol.messages import AnyMessage, Output, Progress

OUTBOX_BYTES_MAX: Final = 8 << 20
OUTBOX_MESSAGES_MAX: Final = 16_384
ALL_OUTBOXES_BYTES_MAX: Final = 128 << 20
"""Bytes queued for all peers together."""

SOFT_SHARE: Final = 2
"""Soft messages get one part in this many of the room."""

PIECES_SHARE: Final = 2
"""Pieces of blobs get one in this many parts: more than a peer requests at once."""

Drop = Literal["dropped soft", "dropped full", "dropped undelivered"]


class Budget:
    """Totals over all outboxes of a node: bytes held, messages dropped."""

    def __init__(self, bytes_max: int = ALL_OUTBOXES_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        self.drops: Counter[Drop] = Counter()


@final
class _Entry:
    __slots__ = ("part",)

    def __init__(self, part: bytes) -> None:
        self.part = part  # Empty once it was taken, or dropped in favour of another.


@final
class Outbox:
    """Messages for one peer, encoded, in the order in which they were put."""

    def __init__(
        self,
        budget: Budget,
        bytes_max: int = OUTBOX_BYTES_MAX,
        messages_max: int = OUTBOX_MESSAGES_MAX,
    ) -> None:
        self._budget = budget
        self._bytes_max = bytes_max
        self._messages_max = messages_max
        self._entries: list[_Entry] = []
        self._soft: list[_Entry] = []  # Those of the above that may be dropped.
        self._soft_bytes = 0
        self._pieces: deque[bytes] = deque()  # Not among the above.
        self._pieces_bytes = 0
        self._count = 0
        self.bytes = 0

    def __len__(self) -> int:
        return self._count

    def put(self, message: AnyMessage, part: bytes) -> bool:
        """Queue a message; return False if it was dropped, which is counted."""
        if isinstance(message, BlobPiece | ApiPiece):
            return self._put_piece(part)
        soft = isinstance(message, Progress | Output)
        if soft and not self._fits_soft(part):
            self._budget.drops["dropped soft"] += 1
            return False
        while not self._fits(part) and (self._pieces or self._soft):
            self._drop_newest_soft()
        if not self._fits(part):
            self._budget.drops["dropped full"] += 1
            return False
        entry = _Entry(part)
        self._entries.append(entry)
        if soft:
            self._soft.append(entry)
            self._soft_bytes += len(part)
        self._add(1, len(part))
        return True

    def _put_piece(self, part: bytes) -> bool:
        fits = self._pieces_bytes + len(part) <= self._bytes_max // PIECES_SHARE
        if not fits or not self._fits(part):
            self._budget.drops["dropped soft"] += 1
            return False
        self._pieces.append(part)
        self._pieces_bytes += len(part)
        self._add(1, len(part))
        return True

    def take(self, bytes_max: int) -> list[bytes]:
        """Remove the oldest messages: at least one, at most `bytes_max` bytes."""
        size, taken = 0, 0
        for entry in self._entries:
            if size and size + len(entry.part) > bytes_max:
                break
            size += len(entry.part)
            taken += 1
        parts: list[bytes] = []
        for entry in self._entries[:taken]:
            if entry.part:
                parts.append(entry.part)
                entry.part = b""
        del self._entries[:taken]
        self._add(-len(parts), -size)
        if self._soft:
            self._soft = [entry for entry in self._soft if entry.part]
            self._soft_bytes = sum(len(entry.part) for entry in self._soft)
        if not self._entries:
            self._take_pieces(parts, bytes_max - size)
        return parts

    def _take_pieces(self, parts: list[bytes], bytes_max: int) -> None:
        """Add as many pieces of blobs as fit, or one if there is nothing else."""
        left = bytes_max
        while self._pieces and (not parts or len(self._pieces[0]) <= left):
            part = self._pieces.popleft()
            parts.append(part)
            left -= len(part)
            self._pieces_bytes -= len(part)
            self._add(-1, -len(part))

    def clear(self) -> None:
        """Drop and count everything."""
        self._budget.drops["dropped undelivered"] += self._count
        self.take(self.bytes + 1)

    def _fits(self, part: bytes) -> bool:
        return (
            self._count < self._messages_max
            and self.bytes + len(part) <= self._bytes_max
            and self._budget.bytes + len(part) <= self._budget.bytes_max
        )

    def _fits_soft(self, part: bytes) -> bool:
        return (
            self._fits(part)
            and len(self._soft) < self._messages_max // SOFT_SHARE
            and self._soft_bytes + len(part) <= self._bytes_max // SOFT_SHARE
        )

    def _drop_newest_soft(self) -> None:
        if self._pieces:
            size = len(self._pieces.pop())
            self._pieces_bytes -= size
            self._add(-1, -size)
            self._budget.drops["dropped soft"] += 1
            return
        entry = self._soft.pop()
        size = len(entry.part)
        entry.part = b""
        self._soft_bytes -= size
        self._add(-1, -size)
        self._budget.drops["dropped soft"] += 1

    def _add(self, count: int, size: int) -> None:
        self._count += count
        self.bytes += size
        self._budget.bytes += size
