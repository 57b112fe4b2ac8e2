"""Tell the processes of tasks from all other programs, and add up what they use.

Ours are the descendants of this process, and processes that are marked as this
worker's, such as those of a container, which an engine starts. Marks are read once for
each process.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final, NamedTuple, final

from shoal.drivers.supervisor.leftovers import VARIABLE
from shoal.drivers.supervisor.process_tree import descendants, read_text
from shoal.runtime.monitoring.machine_use import busy_s

PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
TICKS_S: Final = os.sysconf("SC_CLK_TCK")
UTIME: Final = 11  # fields of `stat` after the name: own time, and that of children
CSTIME: Final = 14
SURE_AFTER: Final = 3
"""A process without the mark in so many looks has none; before `exec` none has one."""


class OwnUse(NamedTuple):
    """The memory and processes of tasks, and what other programs did since then."""

    memory_bytes: int
    pids: frozenset[int]
    others_cpu_milli: int


@final
class OwnProcesses:
    """The processes of this node's tasks. Not for several threads at once."""

    def __init__(self, mark: str = "", root: int = 0) -> None:
        """Look below `root`, by default this process; and for `mark`, if there is one.

        A mark is the value of `SHOAL_WORKER`.
        """
        self._root = root or os.getpid()
        self._mark = f"{VARIABLE}={mark}".encode() if mark else b""
        self._below_ticks = 0
        self._apart_ticks: dict[int, int] = {}
        self._looks: dict[int, int] = {}  # at processes that do not carry the mark
        self._busy_s, self._at = 0.0, time.monotonic()
        self.use()

    def use(self) -> OwnUse:
        """Return what tasks use, and how many CPUs others used since the last call."""
        below = descendants(self._root)
        apart = self._marked(below)
        pids = frozenset((*below, *apart))
        own_s, busy, at = self._grown(below, apart), busy_s(), time.monotonic()
        others_s, over_s = busy - self._busy_s - own_s, max(1e-3, at - self._at)
        self._busy_s, self._at = busy, at
        others = max(0, round(1_000 * others_s / over_s))
        return OwnUse(sum(map(_memory, pids)), pids, others)

    def _grown(self, below: list[int], apart: list[int]) -> float:
        # The time of a process that has ended is counted as its parent's.
        ticks = sum(map(_ticks, (self._root, *below)))
        grown, self._below_ticks = max(0, ticks - self._below_ticks), ticks
        before, self._apart_ticks = self._apart_ticks, {p: _ticks(p) for p in apart}
        for pid, now in self._apart_ticks.items():
            grown += max(0, now - before.get(pid, 0))
        return grown / TICKS_S

    def _marked(self, below: list[int]) -> list[int]:
        """Return processes elsewhere that carry the mark."""
        if not self._mark:
            return []
        known = {self._root, *below}
        looks: dict[int, int] = {}
        found: list[int] = []
        for name in os.listdir("/proc"):  # noqa: PTH208 - Often.
            if not name.isdecimal() or (pid := int(name)) in known:
                continue
            looks[pid] = self._looks.get(pid, 0) + 1
            if looks[pid] <= SURE_AFTER and self._is_marked(pid):
                del looks[pid]
                found.append(pid)
        self._looks = looks
        return found

    def _is_marked(self, pid: int) -> bool:
        try:
            return self._mark in Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False


def _ticks(pid: int) -> int:
    fields = read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return sum(map(int, fields[UTIME : CSTIME + 1]))


def _memory(pid: int) -> int:
    """Return the memory of a process that it shares with no other, roughly."""
    fields = read_text(f"/proc/{pid}/statm").split()
    return (int(fields[1]) - int(fields[2])) * PAGE_BYTES if len(fields) > 2 else 0
