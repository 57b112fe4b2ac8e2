"""Watch over what a task uses, for want of a kernel that does.

Wardens use this, so it may import nothing but the standard library.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, final

from shoal.drivers.disk_use import DiskUse, Excess
from shoal.drivers.memory_use import memory_used

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.drivers.warden_frames import Start

LOOK_S: Final = 0.5


@final
class Watch:
    """Looks at one task now and then."""

    def __init__(self, start: Start) -> None:
        self._next = time.monotonic() + LOOK_S
        self._memory_bytes = start.memory_bytes
        self._disk: DiskUse | None = None
        if start.disk_bytes:
            self._disk = DiskUse(start.folder, start.disk_bytes, start.keep_bytes)

    @property
    def every_s(self) -> float | None:
        """How often to look; None if there is nothing to look at."""
        return LOOK_S if self._memory_bytes or self._disk else None

    def look(self, top: int, scratch: Sequence[int]) -> str:
        """Say what the processes below `top` use beyond what they may, if so.

        However often this is asked, it looks only now and then.
        """
        now = time.monotonic()
        if now < self._next:
            return ""
        self._next = now + LOOK_S
        limit = self._memory_bytes
        if limit and (used := memory_used(top, limit, scratch)) > limit:
            told = f"it used {used >> 20} MiB of memory"
            return f"{told}, its limit is {limit >> 20} MiB"
        if self._disk is not None:
            try:
                self._disk.look(top)
            except Excess as excess:
                return str(excess)
            except OSError:
                return ""  # The work directory is gone: there is nothing to keep.
        return ""

    def close(self) -> None:
        """Close what is open."""
        if self._disk is not None:
            self._disk.close()
