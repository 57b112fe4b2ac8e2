"""Runs one machine on an event loop: facts in, effects out, deadlines kept.

Everything happens in callbacks of the loop's own thread, so there are no locks. Facts
wait in an inbox and are handled in turns; a turn is short, so that the loop's other
work is not kept waiting. What one turn says to one peer goes out in one frame,
because links gather until the turn is over.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol, final

from shoal.core.barrier import Barrier
from shoal.core.events import (
    DeadlineReached,
    Effect,
    Event,
    MessageReceived,
    Record,
)
from shoal.runtime.alarm import Alarm

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.core.journal import Entry

EVENTS_PER_TURN_MAX: Final = 256
INBOX_MAX: Final = 100_000


class Machine(Protocol):
    """What a host runs."""

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take in one fact; return what to do about it."""
        ...

    def next_deadline(self) -> float | None:
        """When to deliver `DeadlineReached`, if ever."""
        ...


class Journal(Protocol):
    """Where records go. It tells `Host.synced` how far they are on disk."""

    def append(self, entry: Entry, *, durable: bool) -> int:
        """Write an entry soon; return its number. Never blocks."""
        ...


@final
class Host:
    """One machine, its inbox and its barrier.

    Nothing that was returned after a durable record is performed before that record
    is on disk; a crash loses a tail of effects and never a record that was seen.
    """

    def __init__(
        self,
        machine: Machine,
        journal: Journal,
        perform: Callable[[Effect], None],
        *,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """Perform effects by `perform`; a bug in the machine ends in `on_failure`."""
        self.dropped = 0  # messages of peers that found the inbox full
        self.handled = 0
        self.handling: Event | None = None  # what the machine was told last
        self._machine = machine
        self._journal = journal
        self._perform = perform
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._inbox: deque[Event] = deque()
        self._barrier = Barrier()
        self._turn: asyncio.Handle | None = None
        self._alarm = Alarm(self._schedule)
        self._closed = False

    def feed(self, event: Event) -> None:
        """Tell the machine a fact in the next turn; facts keep their order.

        What peers say may be dropped, as a network drops it. What happens here is
        told in any case: nobody would say again that a task has ended.
        """
        if len(self._inbox) >= INBOX_MAX and type(event) is MessageReceived:
            self.dropped += 1
            return
        self._inbox.append(event)
        self._schedule()

    def synced(self, number: int) -> None:
        """Perform what waited for records up to `number`: they are on disk."""
        for effect in self._barrier.synced(number):
            self._perform(effect)

    def close(self) -> None:
        """Handle nothing more."""
        self._closed = True
        if self._turn is not None:
            self._turn.cancel()
        self._alarm.stop()

    def _schedule(self) -> None:
        if self._turn is None and not self._closed:
            self._turn = self._loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._turn = None
        try:
            self._handle_some()
        except Exception as error:  # noqa: BLE001 - A machine never raises: a bug.
            self.close()
            self._on_failure(error)

    def _handle_some(self) -> None:
        for _ in range(min(len(self._inbox), EVENTS_PER_TURN_MAX)):
            self._tell(self._inbox.popleft())
        due = self._machine.next_deadline()
        if due is not None and due <= self._loop.time() and not self._inbox:
            self._tell(DeadlineReached())
            due = self._machine.next_deadline()
        self._alarm.set(None if self._closed else due)
        if self._inbox:
            self._schedule()

    def _tell(self, event: Event) -> None:
        self.handled += 1
        self.handling = event
        for effect in self._machine.handle(event, self._loop.time()):
            if type(effect) is Record:
                number = self._journal.append(effect.entry, durable=effect.durable)
                if effect.durable:
                    self._barrier.rise(number, effect.entry)
            elif not self._barrier.holds(effect):
                self._perform(effect)
