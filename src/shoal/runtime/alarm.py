"""One timer of the event loop that can be moved and stopped."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Callable


@final
class Alarm:
    """Calls `ring` when it is due; the callee sets it again.

    Most deadlines are put off again and again, and to move a timer costs more than to
    let it pass: one that comes too early is started again for the time that is left.
    """

    def __init__(self, ring: Callable[[], None]) -> None:
        """Needs a running loop."""
        self._ring = ring
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0  # what the timer is for: one of uvloop may not know
        self._due: float | None = None

    def set(self, due: float | None) -> None:
        """Ring at exactly this time; None means never."""
        self._due = due
        if due is not None and (self._timer is None or due < self._timer_due):
            self._start(due)

    def stop(self) -> None:
        """Do not ring."""
        self._due = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due = due
        self._timer = self._loop.call_at(due, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        if self._due is None:
            return
        if self._due > self._timer_due:
            self._start(self._due)
            return
        self._due = None
        self._ring()
