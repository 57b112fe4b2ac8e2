"""One timer of the event loop that can be moved and stopped."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Callable


@final
class Alarm:
    """Calls `ring` when it is due; the callee sets it again."""

    def __init__(self, ring: Callable[[], None]) -> None:
        """Needs a running loop."""
        self._ring = ring
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0  # what the timer is for: one of uvloop may not know

    def set(self, due: float | None) -> None:
        """Ring at exactly this time; None means never."""
        if self._timer is not None:
            if self._due == due:
                return
            self.stop()
        if due is not None:
            self._start(due)

    def stop(self) -> None:
        """Do not ring."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start(self, due: float) -> None:
        self._due = due
        self._timer = self._loop.call_at(due, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        self._ring()
