"""Runs the courier of one side of a lane on the event loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, final

from shoal.core.courier import Batch, Courier
from shoal.runtime.alarm import Alarm

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shoal.protocol.batches import CallBatch, ResultBatch


@final
class Ferry:
    """Sends what is put, and hands over what comes: once, and in order."""

    def __init__(
        self,
        send: Callable[[Batch], None],
        take: Callable[[list[bytes]], None],
    ) -> None:
        self._courier = Courier()
        self._send = send
        self._take = take
        self._loop = asyncio.get_running_loop()
        self._alarm = Alarm(self._pump)
        self._pumping = False
        self._again = False
        self._closed = False

    @property
    def waiting_bytes(self) -> int:
        """How much was put that is not known to have been taken."""
        return self._courier.waiting_bytes

    def put(self, items: Sequence[bytes]) -> None:
        """Send these."""
        self._courier.put(items)
        self._pump()

    def receive(self, message: CallBatch | ResultBatch) -> None:
        """Take in what the other side says."""
        batch = Batch(
            message.first, message.taken, message.items, message.open, message.probe
        )
        fresh = self._courier.receive(batch, self._loop.time())
        if fresh:
            self._take(fresh)
        self._pump()

    def set_open(self, *, is_open: bool) -> None:
        """Say whether there is room for more from the other side."""
        if self._courier.open != is_open:
            self._courier.open = is_open
            self._pump()

    def hasten(self) -> None:
        """Say again what may have got lost."""
        self._courier.hasten(self._loop.time())
        self._pump()

    def close(self) -> None:
        """Send nothing more."""
        self._closed = True
        self._alarm.stop()

    def _pump(self) -> None:
        """Send what is due. What that leads to may end here again: one at a time."""
        self._again = True
        if self._pumping:
            return
        self._pumping = True
        while self._again and not self._closed:
            self._again = False
            for batch in self._courier.due(self._loop.time()):
                self._send(batch)
        self._pumping = False
        if not self._closed:
            self._alarm.set_by(self._courier.next_deadline())
