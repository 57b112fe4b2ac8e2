"""Read the wall clock periodically and tell the machine.

Grants expire by the wall clock. The event loop's clock stands still while a machine
sleeps; the wall clock may be set at any time and is often wrong for some seconds after
a boot. So no reading is trusted for long.
"""

from __future__ import annotations

import asyncio
import functools
import re
import time
from typing import TYPE_CHECKING, Final, final
from zoneinfo import ZoneInfo

from shoal.core.events import WallClockRead
from shoal.model.spec.schedules import utc_only
from shoal.runtime.alarm import Alarm

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import tzinfo

    from shoal.core.events import Event

READ_EVERY_S: Final = 10.0


_ZONE: Final = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*")


@functools.lru_cache(maxsize=64)
def zone_of(name: str) -> tzinfo | None:
    """Return a time zone of this machine by its name; None if there is none."""
    if _ZONE.fullmatch(name) is None:
        return None
    try:
        return utc_only(name) or ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # No such file, or none of the kind.
        return None


@final
class WallClock:
    """The wall clock of this machine, as its node sees it."""

    def __init__(
        self, feed: Callable[[Event], None], read: Callable[[], float] = time.time
    ) -> None:
        self._feed = feed
        self._read = read
        self._alarm: Alarm | None = None

    def start(self) -> None:
        """Read it now and periodically."""
        self._alarm = Alarm(self._ring)
        self._ring()

    def stop(self) -> None:
        """Stop reading."""
        if self._alarm is not None:
            self._alarm.stop()
            self._alarm = None

    def _ring(self) -> None:
        self._feed(WallClockRead(self._read()))
        if self._alarm is not None:
            self._alarm.set(asyncio.get_running_loop().time() + READ_EVERY_S)
