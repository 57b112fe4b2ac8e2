"""Run one machine on an event loop: feed facts, perform effects, keep deadlines.

The parts of a node report to its host and are built before its machine, so facts that
come before `start` wait in the inbox.

Everything runs in callbacks on the loop's thread, so there are no locks. Facts wait in
an inbox of at most `INBOX_MAX` and are handled in turns of at most
`EVENTS_PER_TURN_MAX`, so that other work on the loop is not delayed. Links send the
messages of one turn to one peer in a single frame.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol, final

from shoal.core.durability.barrier import Barrier
from shoal.core.events import (
    DeadlineReached,
    Effect,
    Event,
    MessageReceived,
    Record,
)
from shoal.runtime.alarm import Alarm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from shoal.core.durability.journal import Entry
    from shoal.core.machine import Decider

EVENTS_PER_TURN_MAX: Final = 256
INBOX_MAX: Final = 100_000


class HostJournal(Protocol):
    """Stores records, and calls `Host.synced` once they are on disk."""

    def append(self, entry: Entry, *, durable: bool, within_s: float = 0.0) -> int:
        """Write an entry within this time; return its number. Never blocks."""
        ...


@final
class Host:
    """One machine, its inbox and its barrier.

    Effects that follow a durable record wait until that record is on disk. A crash
    loses the last effects, but never a record whose effects were seen.
    """

    _machine: Decider
    _journal: HostJournal
    _perform: Callable[[Effect], None]
    _on_failure: Callable[[BaseException], None]

    def __init__(self) -> None:
        self.dropped = 0  # peer messages dropped as the inbox was full
        self.handling: Event | None = None  # the machine's latest event
        self._loop = asyncio.get_running_loop()
        self._inbox: deque[Event] = deque()
        self._barrier = Barrier()
        self._turn: asyncio.Handle | None = None  # the next one, if it is scheduled
        self._in_turn = False
        self._alarm = Alarm(self._schedule)
        self._idle = True  # before `start`, and after `close`

    def start(
        self,
        machine: Decider,
        journal: HostJournal,
        perform: Callable[[Effect], None],
        *,
        on_failure: Callable[[BaseException], None],
        first: Iterable[Event] = (),
    ) -> None:
        """Run a machine, which is told `first` before all facts that came so far.

        Perform effects by `perform`; pass an error of the machine to `on_failure`.
        """
        self._machine = machine
        self._journal = journal
        self._perform = perform
        self._on_failure = on_failure
        self._idle = False
        self._inbox.extendleft(reversed([*first]))
        if self._inbox:
            self._schedule()

    def feed(self, event: Event) -> None:
        """Queue a fact for the machine; facts keep their order.

        A full inbox drops messages of peers, as a network would. Local facts are
        never dropped, because nobody repeats them.
        """
        if len(self._inbox) >= INBOX_MAX and type(event) is MessageReceived:
            self.dropped += 1
            return
        self._inbox.append(event)
        self._schedule()

    def feed_now(self, event: Event) -> None:
        """Tell the machine a fact before returning, if no other fact is waiting.

        It saves a turn of the loop to those who wait for each answer. Inside a turn it
        is `feed`: a machine handles one fact at a time.
        """
        waits = self._turn is not None or self._inbox or self._in_turn or self._idle
        self._inbox.append(event)
        if not waits:
            self._take_turn()
        else:
            self._schedule()

    def synced(self, number: int) -> None:
        """Perform effects that waited for records up to `number`."""
        for effect in self._barrier.synced(number):
            self._perform(effect)

    def close(self) -> None:
        """Handle nothing more."""
        self._idle = True
        if self._turn is not None:
            self._turn.cancel()
        self._alarm.stop()

    def _schedule(self) -> None:
        if self._turn is None and not self._idle:
            self._turn = self._loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._turn = None
        self._in_turn = True
        try:
            for _ in range(min(len(self._inbox), EVENTS_PER_TURN_MAX)):
                self._tell(self._inbox.popleft())
            due = self._machine.next_deadline()
            if due is not None and due <= self._loop.time() and not self._inbox:
                self._tell(DeadlineReached())
                due = self._machine.next_deadline()
            self._alarm.set(None if self._idle else due)
            if self._inbox:
                self._schedule()
        except Exception as error:  # noqa: BLE001 - A machine never raises: a bug.
            self.close()
            self._on_failure(error)
        finally:
            self._in_turn = False

    def _tell(self, event: Event) -> None:
        self.handling = event
        for effect in self._machine.handle(event, self._loop.time()):
            if type(effect) is Record:
                number = self._journal.append(
                    effect.entry, durable=effect.durable, within_s=effect.within_s
                )
                if effect.durable:
                    self._barrier.rise(number, effect.entry)
            elif not self._barrier.holds(effect):
                self._perform(effect)
