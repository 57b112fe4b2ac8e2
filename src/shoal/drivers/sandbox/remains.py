"""What a task may leave behind in a sandbox when all its processes are gone.

Segments, semaphores and queues of System V and queues of POSIX belong to a namespace
and outlive whoever made them. And a task has the uid of its keeper, so it may change
limits, priority and CPUs of it, which the next task would inherit.

Supervisors use this, so it may import only the standard library.
"""

from __future__ import annotations

import os
import resource
from typing import Final, final

from shoal.drivers.sandbox import mounts

_SYSTEM_V: Final = ("shm", "sem", "msg")
_LIMITS: Final = tuple(range(16))  # all that Linux has
_LIST_BYTES: Final = 4_096


@final
class Remains:
    """Compares what is there after a task with what was there before the first."""

    def __init__(self) -> None:
        """Look for the first time; needs the privileges to mount."""
        self._lists: dict[int, bytes] = {}  # by descriptor: who opened it may read it
        for name in _SYSTEM_V:
            try:
                fd = os.open(f"/proc/sysvipc/{name}", os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                continue  # The kernel has none.
            self._lists[fd] = os.pread(fd, _LIST_BYTES, 0)
        self._queues = mounts.message_queues()
        if self._queues < 0:  # Then nobody may make any.
            resource.setrlimit(resource.RLIMIT_MSGQUEUE, (0, 0))
        self._settings: tuple[object, ...] = ()

    def begin(self) -> None:
        """Note how we are before the first task; call before each."""
        if not self._settings:
            self._settings = _settings()

    def found(self) -> str:
        """Return what a task left behind; empty if nothing."""
        for fd, before in self._lists.items():
            if os.pread(fd, _LIST_BYTES, 0) != before:
                return "it left memory or messages of System V"
        if self._queues >= 0 and os.listdir(self._queues):  # noqa: PTH208
            return "it left queues of messages"
        if _settings() != self._settings:
            return "it changed how its keeper runs"
        return ""


def _settings() -> tuple[object, ...]:
    """Return what a process of our uid can change of us, but for our CPUs.

    Those are set for each task.
    """
    return (
        *map(resource.getrlimit, _LIMITS),
        os.getpriority(os.PRIO_PROCESS, 0),
        os.sched_getscheduler(0),
    )
