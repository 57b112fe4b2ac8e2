"""Watch a task's memory and disk use, and check it where the kernel does not limit it.

The supervisor's loop calls `look`, which checks every `LOOK_S` and returns the reason
to kill the task, if there is one. How much memory a task took is looked at ever more
rarely, as the kernel knows the most that each living process ever had.

Supervisors use this, so it may import only the standard library.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final, NamedTuple, final

from shoal.drivers.limits.disk_use import DiskUse, Excess
from shoal.drivers.supervisor.process_tree import descendants, open_files, read_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.drivers.supervisor.supervisor_frames import StartAttempt

PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
BLOCK_BYTES: Final = 512
NAMELESS: Final = "/memfd:"


class _Inode(NamedTuple):
    device: int
    number: int


def memory_used(top: int, limit_bytes: int, scratch: Sequence[int] = ()) -> int:
    """Return the memory used by all descendants of `top`.

    This is a quick upper bound if that is within the limit, and exact otherwise.
    Shared pages count once. Files in the task's in-memory folders, whose descriptors
    are `scratch`, count, mapped or not, and so do open memfds. Data in socket buffers
    is not seen; only a cgroup counts it.
    """
    pids = descendants(top)
    nameless = _nameless(pids)
    files = sum(map(_held, scratch)) + sum(nameless.values())
    resident = sum(map(_resident, pids))
    if resident + files <= limit_bytes:
        return resident + files
    # The sum counts shared pages once per process: measure exactly.
    devices = {os.fstat(fd).st_dev for fd in scratch}
    return files + sum(_share(pid, devices, nameless) for pid in pids)


def _held(fd: int) -> int:
    """Return the bytes used in an in-memory file system."""
    found = os.statvfs(fd)
    return (found.f_blocks - found.f_bfree) * found.f_frsize


def _resident(pid: int) -> int:
    fields = read_text(f"/proc/{pid}/statm").split()
    return int(fields[1]) * PAGE_BYTES if fields else 0


def _nameless(pids: Sequence[int]) -> dict[_Inode, int]:
    """Return the open memfds and the bytes of each."""
    found: dict[_Inode, int] = {}
    for path in open_files(pids):
        try:
            if os.readlink(path).startswith(NAMELESS):  # noqa: PTH115
                told = os.stat(path)  # noqa: PTH116
                inode = _Inode(told.st_dev, told.st_ino)
                found[inode] = told.st_blocks * BLOCK_BYTES
        except OSError:
            continue
    return found


def _share(pid: int, devices: set[int], nameless: dict[_Inode, int]) -> int:
    """Return a process's share of memory, without files counted elsewhere."""
    text = read_text(f"/proc/{pid}/smaps")
    if not text:
        return _resident(pid)  # Unreadable: count shared pages in full.
    total, counts = 0, True
    for line in text.splitlines():
        first, *fields = line.split()
        if "-" in first and len(fields) >= 4:
            major, _, minor = fields[2].partition(":")
            device = os.makedev(int(major, 16), int(minor, 16))
            inode = _Inode(device, int(fields[3]))
            counts = device not in devices and inode not in nameless
        elif first == "Pss:" and counts:
            total += int(fields[0]) << 10
    return total


def _most_of(pid: int) -> tuple[int, int]:
    """Return the most memory that a process ever had, and what of it may be shared."""
    lines = read_text(f"/proc/{pid}/status").splitlines()
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    most, file, shared = (
        int(fields[name].split()[0]) << 10 if name in fields else 0
        for name in ("VmHWM", "RssFile", "RssShmem")
    )
    return most, file + shared


def most_used(top: int) -> int:
    """Return the most memory that the descendants of `top` had, roughly.

    Programs, libraries and shared memory count once, as most of them are the same.
    """
    each = [_most_of(pid) for pid in descendants(top)]
    own = sum(most - min(most, shared) for most, shared in each)
    return own + max((min(found) for found in each), default=0)


LOOK_S: Final = 0.5
MOST_LOOK_S_MAX: Final = 4.0


@final
class UsageWatch:
    """Checks one task periodically."""

    def __init__(self, start: StartAttempt) -> None:
        self._next = self._most_next = time.monotonic() + LOOK_S
        self._most_wait_s = LOOK_S
        self.most_bytes = 0  # the most memory that was seen
        self._memory_bytes = start.memory_bytes
        self._disks: list[DiskUse] = []
        if start.disk_bytes:
            own = DiskUse(start.folder, start.disk_bytes, start.keep_bytes)
            self._disks.append(own)
        for cache in start.caches:
            most, _, folder = cache.partition(":")
            self._disks.append(DiskUse(folder, int(most), is_cache=True))

    @property
    def wait_s(self) -> float:
        """When to call `look` again."""
        if self._memory_bytes or self._disks:
            return LOOK_S
        return max(0.0, self._most_next - time.monotonic())

    def look(self, top: int, scratch: Sequence[int]) -> str:
        """Return which limit the processes below `top` exceed; empty if none.

        Checks at most once every `LOOK_S`.
        """
        now = time.monotonic()
        if now >= self._most_next:
            self.most_bytes = max(self.most_bytes, most_used(top))
            self._most_wait_s = min(2 * self._most_wait_s, MOST_LOOK_S_MAX)
            self._most_next = now + self._most_wait_s
        if now < self._next:
            return ""
        self._next = now + LOOK_S
        limit = self._memory_bytes
        if limit and (used := memory_used(top, limit, scratch)) > limit:
            told = f"it used {used >> 20} MiB of memory"
            return f"{told}, its limit is {limit >> 20} MiB"
        for disk in self._disks:
            try:
                disk.look(top)
            except Excess as excess:
                return str(excess)
            except OSError:
                continue  # The folder is gone.
        return ""

    def close(self) -> None:
        """Close all files."""
        for disk in self._disks:
            disk.close()
