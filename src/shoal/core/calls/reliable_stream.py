"""Carries items between two nodes: each arrives once, and in order.

Theory of operation. A link loses what is in flight when it breaks, and drops what does
not fit; a lost call or result would be waited for without end. So each side numbers its
items from 0 and keeps them until the other side has said how many it took. Without such
a word everything from the first item not taken is sent again, after 1 s, then with
growing pauses up to 8 s. What overtakes something else waits for it here. The word
travels with items of the other direction, or alone after 0.1 s. Each lane, and each
channel to a task, has one stream, with one `ReliableStream` at either end.

A side whose consumer is slow says that it is not `open`. Nothing new is sent to it, and
the other side asks now and then whether that has changed. An answer never asks back, or
two sides that are both slow would ask each other without end. Each change has a `turn`:
a batch that was overtaken opens no side that has closed since. What is in flight is
bounded by its window and `WINDOW_ITEMS`; what is put is bounded by whoever puts it.
Nothing is durable: a stream ends with its lane or its client.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar, final

from shoal.model.backoff import Backoff
from shoal.model.text.bounds import AMOUNT_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WINDOW_BYTES: Final = 4 << 20
"""What may be on its way to the other side, unless a stream has its own window."""

WINDOW_ITEMS: Final = 8_192
BATCH_BYTES: Final = 400_000
BATCH_ITEMS: Final = 1_024
ACK_SHARE: Final = 4  # of a window
ACK_ITEMS: Final = WINDOW_ITEMS // 4
ACK_AFTER_S: Final = 0.1
"""How long the word that something was taken waits for something to go with it."""

TURN_LAST: Final = AMOUNT_MAX
"""Of one who has forgotten the stream: no turn that it said before is later."""

RESEND_S: Final = 1.0
RESEND: Final = Backoff(RESEND_S, 8.0)


class Batch(Protocol):
    """The part of a message that streams read: some items, numbered from `first`."""

    @property
    def first(self) -> int:
        """The number of the first item."""
        ...

    @property
    def taken(self) -> int:
        """How many items of the other side came."""
        ...

    @property
    def items(self) -> tuple[bytes, ...]:
        """The items, in order."""
        ...

    @property
    def open(self) -> bool:
        """Whether the sender can take more."""
        ...

    @property
    def probe(self) -> bool:
        """Whether the sender asks for an answer."""
        ...

    @property
    def turn(self) -> int:
        """How often `open` has changed so far."""
        ...


B = TypeVar("B", bound=Batch)


@final
class ReliableStream(Generic[B]):
    """One side of a stream. `put` items to send; send what `due` returns."""

    def __init__(
        self, batch: Callable[..., B], window_bytes: int = WINDOW_BYTES
    ) -> None:
        """Make messages by `batch`; have at most a window of bytes on their way."""
        self.open = True  # whether our consumer can take more
        self.waiting_bytes = 0  # of items not known to be taken
        self._batch = batch
        self._kept: deque[bytes] = deque()  # put, and not known to be taken
        self._first = 0  # the number of the first of these
        self._sent = 0  # how many of these were sent
        self._sent_bytes = 0
        self._taken = 0  # items of the other side that came, in order
        self._early: dict[int, tuple[bytes, ...]] = {}  # came before their turn
        self._early_bytes = 0  # at most a window
        self._told_taken = 0
        self._told_open = True
        self._turn = 0  # how often that has changed
        self._untold_bytes = 0
        self._ack_at: float | None = None
        self._other_open = True
        self._other_turn = 0
        self._answer = False  # the other side asked
        self._ask = False  # whether to ask the other side for a word
        self._window_bytes = window_bytes
        self._tries = 0  # resends since the other side last took anything
        self._resend_at: float | None = None

    @property
    def waiting(self) -> int:
        """How many items are not known to have been taken."""
        return len(self._kept)

    def put(self, items: Sequence[bytes]) -> None:
        """Have these sent as soon as there is room."""
        self._kept.extend(items)
        self.waiting_bytes += sum(map(len, items))

    def receive(self, batch: Batch, now: float) -> list[bytes]:
        """Take in a batch; return the items that are new, in order."""
        self._on_taken(batch.taken, now)
        if batch.turn >= self._other_turn:
            self._other_open, self._other_turn = batch.open, batch.turn
        if batch.probe:
            self._answer = True
        skip = self._taken - batch.first
        if skip < 0:
            self._keep_early(batch)
        if skip < 0 or skip >= len(batch.items):
            if batch.items:
                self._answer = True  # A gap, or a repeat: say where we are.
            return []
        fresh = list(batch.items[skip:])
        self._taken += len(fresh)
        if self._early:
            fresh += self._take_early()
        self._untold_bytes += sum(map(len, fresh))
        if self._ack_at is None:
            self._ack_at = now + ACK_AFTER_S
        return fresh

    def due(self, now: float) -> list[B]:
        """Return what is to be sent now."""
        if self._resend_at is not None and self._resend_at <= now:
            self._go_back()
        batches: list[B] = []
        while (items := self._next_items()) or (not batches and self._must_tell(now)):
            self._turn += self._told_open != self.open
            batch = self._batch(
                first=self._first + self._sent,
                taken=self._taken,
                items=items,
                open=self.open,
                probe=self._ask,
                turn=self._turn,
            )
            batches.append(batch)
            self._sent += len(items)
            self._sent_bytes += sum(map(len, items))
            self._told_taken, self._untold_bytes = self._taken, 0
            self._told_open = self.open
            self._ack_at = None
            self._answer = self._ask = False
        shut_out = not self._other_open and self._kept
        if self._resend_at is None and (self._sent or shut_out):
            self._resend_at = now + RESEND.pause_s(self._tries)
        return batches

    def hasten(self, now: float) -> None:
        """Say again what was not taken: the link is new, and may have lost it."""
        if self._kept:
            self._tries = 0
            self._resend_at = now

    def answer(self) -> None:
        """Say something, for the other side to know that this one is there."""
        self._answer = True

    def ask(self) -> None:
        """Have the other side say something, to know that it is there."""
        self._ask = True

    def next_deadline(self) -> float | None:
        """When `due` wants to be asked again, if nothing happens before."""
        times = [at for at in (self._ack_at, self._resend_at) if at is not None]
        return min(times, default=None)

    def _keep_early(self, batch: Batch) -> None:
        """Keep what came before its turn, if it fits into a window."""
        size = sum(map(len, batch.items))
        if self._early_bytes + size <= self._window_bytes and batch.items:
            self._early_bytes += size - self._forget_early(batch.first)
            self._early[batch.first] = batch.items

    def _take_early(self) -> list[bytes]:
        """Return what came before its turn, and whose turn it is now."""
        fresh: list[bytes] = []
        for first in sorted(self._early):
            if first > self._taken:
                break
            items = self._early[first][self._taken - first :]
            self._early_bytes -= self._forget_early(first)
            fresh += items
            self._taken += len(items)
        return fresh

    def _forget_early(self, first: int) -> int:
        """Forget a batch that came early; return how large it was."""
        return sum(map(len, self._early.pop(first, ())))

    def _on_taken(self, taken: int, now: float) -> None:
        count = taken - self._first
        if count <= 0 or count > self._sent:
            return  # Old news, or nonsense.
        gone = sum(len(self._kept.popleft()) for _ in range(count))
        self._sent_bytes -= gone
        self.waiting_bytes -= gone
        self._first = taken
        self._sent -= count
        self._tries = 0
        self._resend_at = now + RESEND_S if self._sent else None

    def _go_back(self) -> None:
        self._sent = self._sent_bytes = 0
        self._resend_at = None
        self._tries += 1
        if not self._other_open and self._kept:
            self._ask = True

    def _next_items(self) -> tuple[bytes, ...]:
        if not self._other_open or self._sent == len(self._kept):
            return ()
        taken: list[bytes] = []
        size = 0
        for data in islice(self._kept, self._sent, self._sent + BATCH_ITEMS):
            if taken and size + len(data) > BATCH_BYTES:
                break
            in_flight = self._sent + len(taken)
            if in_flight and self._sent_bytes + size + len(data) > self._window_bytes:
                break
            if in_flight >= WINDOW_ITEMS:
                break
            taken.append(data)
            size += len(data)
        return tuple(taken)

    def _must_tell(self, now: float) -> bool:
        if self._answer or self._ask or self._told_open != self.open:
            return True
        untold = self._taken - self._told_taken
        if untold >= ACK_ITEMS or self._untold_bytes >= self._window_bytes // ACK_SHARE:
            return True
        return self._ack_at is not None and self._ack_at <= now
