"""How much disk a task uses, as far as its files tell.

A work directory is looked through a slice at a time, however many files it has. Blocks
count, not lengths, so a hole costs nothing; a file with several names counts once, and
one that was removed counts while a process has it open. Every entry costs a little,
since the number of files on a disk has a limit as well.

Wardens use this, so it may import nothing but the standard library.
"""

from __future__ import annotations

import os
import stat
import time
from typing import TYPE_CHECKING, Final, NamedTuple, final

from shoal.drivers.process_tree import descendants, open_files

if TYPE_CHECKING:
    from collections.abc import Iterator

SLICE_S: Final = 0.01
CLOSELY_S: Final = 0.5
"""How long a look may take: usually, and when all depends on it."""

ENTRY_BYTES: Final = 1_024
BLOCK_BYTES: Final = 512
DEPTH_MAX: Final = 512
TRIFLE_BYTES: Final = 16 << 20
"""A task that uses no more is not the one that fills a disk."""

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Excess(Exception):  # noqa: N818 - It is what was found, not an error of ours.
    """A task uses more than it may; the text says what."""


class _Level(NamedTuple):
    """A folder that is being looked through."""

    fd: int
    names: Iterator[str]


@final
class DiskUse:
    """Looks after the work directory of one task."""

    def __init__(self, folder: str, limit_bytes: int, keep_bytes: int) -> None:
        """Let it use so much, and leave so much free on its disk."""
        self._folder = folder
        self._above = os.path.dirname(folder)  # noqa: PTH120 - There before the folder.
        self._limit = limit_bytes
        self._keep = keep_bytes
        self._levels: list[_Level] = []
        self._seen: set[int] = set()  # files with several names
        self._counted = 0  # in this pass
        self._last = 0  # what the last whole pass found
        self._room = self._free()  # on the disk, when that was
        self._began_with = self._room  # on the disk, when this pass began

    def look(self, top: int) -> None:
        """Look for a while; raise `Excess` if what is below `top` uses too much."""
        open_bytes = self._removed(top)
        # All that was written on this disk since may have been by this task.
        suspect = self._last + self._room - self._free() > self._limit
        self._walk(CLOSELY_S if suspect else SLICE_S)
        used = max(self._counted, self._last) + open_bytes
        if used > self._limit and not suspect:
            self._start_over()  # What was counted early may be gone by now.
            self._walk(CLOSELY_S)
            used = max(self._counted, self._last) + self._removed(top)
        if used > self._limit:
            limit = f"its limit is {self._limit >> 20} MiB"
            raise Excess(f"it used {used >> 20} MiB of disk, {limit}")
        self._look_at_disk(used)

    def _free(self) -> int:
        """Return what is free of the disk, as this counts it."""
        found = os.statvfs(self._above)
        return found.f_bfree * found.f_frsize + found.f_ffree * ENTRY_BYTES

    def close(self) -> None:
        """Close what is open."""
        for level in self._levels:
            os.close(level.fd)
        self._levels = []

    def _look_at_disk(self, used: int) -> None:
        """Leave the owner of the machine something, whatever was promised."""
        found = os.statvfs(self._folder)
        free = found.f_bavail * found.f_frsize
        if free < self._keep and used > TRIFLE_BYTES:
            raise Excess(
                f"its disk has {free >> 20} MiB left, of which {self._keep >> 20} MiB "
                f"are its owner's; it used {used >> 20} MiB"
            )

    # The work directory.

    def _start_over(self) -> None:
        self.close()
        self._counted = self._last = 0
        self._seen = set()

    def _walk(self, for_s: float) -> None:
        until = time.monotonic() + for_s
        if not self._levels:
            self._began_with = self._free()
            self._counted = 0
            self._seen = set()
            self._enter(None, self._folder)
        while self._levels:
            level = self._levels[-1]
            name = next(level.names, None)
            if name is None:
                os.close(self._levels.pop().fd)
                continue
            self._count(level.fd, name)
            if time.monotonic() > until:
                return
        self._last = self._counted
        self._room = self._began_with

    def _count(self, folder: int, name: str) -> None:
        try:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except OSError:
            return  # It is gone.
        if stat.S_ISDIR(found.st_mode):
            self._enter(folder, name)
        elif found.st_nlink > 1:
            if found.st_ino in self._seen:
                return
            self._seen.add(found.st_ino)
        self._counted += found.st_blocks * BLOCK_BYTES + ENTRY_BYTES

    def _enter(self, folder: int | None, name: str) -> None:
        if len(self._levels) >= DEPTH_MAX:
            raise Excess(f"its folders are more than {DEPTH_MAX} deep")
        try:
            fd = os.open(name, _FOLDER, dir_fd=folder)
        except PermissionError:
            raise Excess("it has hidden a folder of its work directory") from None
        except OSError:
            return  # It is gone, or no folder any more.
        self._levels.append(_Level(fd, iter(os.listdir(fd))))  # noqa: PTH208

    # Files without a name.

    def _removed(self, top: int) -> int:
        """Return what removed files take that processes have open."""
        device = os.stat(self._folder).st_dev  # noqa: PTH116
        found: dict[int, int] = {}
        for path in open_files(descendants(top)):
            try:
                told = os.stat(path)  # noqa: PTH116
            except OSError:
                continue
            if told.st_dev == device and told.st_nlink == 0:
                found[told.st_ino] = told.st_blocks * BLOCK_BYTES
        return sum(found.values())
