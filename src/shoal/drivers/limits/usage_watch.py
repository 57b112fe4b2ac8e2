"""Check a task's memory and disk use where the kernel does not limit it.

The supervisor's loop calls `look`, which checks every `LOOK_S` and returns the reason
to kill the task, if there is one.

Supervisors use this, so it may import only the standard library.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, final

from shoal.drivers.limits.disk_use import DiskUse, Excess
from shoal.drivers.limits.memory_use import memory_used

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.drivers.supervisor.supervisor_frames import StartAttempt

LOOK_S: Final = 0.5


@final
class UsageWatch:
    """Checks one task periodically."""

    def __init__(self, start: StartAttempt) -> None:
        self._next = time.monotonic() + LOOK_S
        self._memory_bytes = start.memory_bytes
        self._disk: DiskUse | None = None
        if start.disk_bytes:
            self._disk = DiskUse(start.folder, start.disk_bytes, start.keep_bytes)

    @property
    def every_s(self) -> float | None:
        """How often to call `look`; None if there is nothing to check."""
        return LOOK_S if self._memory_bytes or self._disk else None

    def look(self, top: int, scratch: Sequence[int]) -> str:
        """Return which limit the processes below `top` exceed; empty if none.

        Checks at most once every `LOOK_S`.
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
                return ""  # The work directory is gone.
        return ""

    def close(self) -> None:
        """Close all files."""
        if self._disk is not None:
            self._disk.close()
