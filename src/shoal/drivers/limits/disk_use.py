"""Measure how much disk space a task uses by walking its folders.

Each look walks for `SLICE_S`, however many files there are, and the next continues
there. If the disk has lost enough space that the task may be over its limit, a look
takes up to `CLOSELY_S`. Allocated blocks count, not lengths, so holes are free. A file
with several names counts once; a removed file counts while a process has it open. Every
entry costs `ENTRY_BYTES`, since the number of files on a disk is limited too.

Supervisors use this, so it may import only the standard library.
"""

from __future__ import annotations

import os
import stat
import time
from typing import TYPE_CHECKING, Final, NamedTuple, final

from shoal.drivers.supervisor.process_tree import descendants, open_files

if TYPE_CHECKING:
    from collections.abc import Iterator

SLICE_S: Final = 0.01
CLOSELY_S: Final = 0.5
"""How long a look may take: normally, and when the limit may be exceeded."""

ENTRY_BYTES: Final = 1_024
BLOCK_BYTES: Final = 512
DEPTH_MAX: Final = 512
TRIFLE_BYTES: Final = 16 << 20
"""A task that uses no more than this is not blamed for a full disk."""

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Excess(Exception):  # noqa: N818 - A finding, not an error.
    """A task exceeds a limit; the text says which."""


class _Level(NamedTuple):
    """A folder being walked."""

    fd: int
    names: Iterator[str]


@final
class DiskUse:
    """Watches one folder of a task: its work directory, or a cache that lasts."""

    def __init__(
        self,
        folder: str,
        limit_bytes: int,
        keep_bytes: int = 0,
        *,
        is_cache: bool = False,
    ) -> None:
        """Allow `limit_bytes` for `folder`, and keep `keep_bytes` of its disk free."""
        self._is_cache = is_cache
        self._folder = folder
        self._above = os.path.dirname(folder)  # noqa: PTH120 - It exists first.
        self._limit = limit_bytes
        self._keep = keep_bytes
        self._levels: list[_Level] = []
        self._seen: set[int] = set()  # files with several names
        self._counted = 0  # bytes counted in this pass
        self._last = 0  # total of the last complete pass
        self._room = self._free()  # free space when the last complete pass began
        self._began_with = self._room  # free space when this pass began

    def look(self, top: int) -> None:
        """Walk on for a while; raise `Excess` if the task below `top` is over."""
        open_bytes = self._removed(top)
        # Attribute all disk space used since then to this task.
        suspect = self._last + self._room - self._free() > self._limit
        self._walk(CLOSELY_S if suspect else SLICE_S)
        used = max(self._counted, self._last) + open_bytes
        if used > self._limit and not suspect:
            self._start_over()  # Files counted early may be gone by now.
            self._walk(CLOSELY_S)
            used = max(self._counted, self._last) + self._removed(top)
        if used > self._limit and self._is_cache:
            raise Excess(
                f"its cache has {used >> 20} MiB, and all caches and environments of "
                f"this worker may have {self._limit >> 20} MiB; "
                "`shoal up --environments` says how much"
            )
        if used > self._limit:
            limit = f"its limit is {self._limit >> 20} MiB"
            raise Excess(f"it used {used >> 20} MiB of disk, {limit}")
        self._look_at_disk(used)

    def _free(self) -> int:
        """Return the free bytes of the disk, counting `ENTRY_BYTES` per free inode."""
        found = os.statvfs(self._above)
        return found.f_bfree * found.f_frsize + found.f_ffree * ENTRY_BYTES

    def close(self) -> None:
        """Close all folders."""
        for level in self._levels:
            os.close(level.fd)
        self._levels = []

    def _look_at_disk(self, used: int) -> None:
        """Raise `Excess` if the disk has less free space than its owner keeps."""
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
            return  # The file is gone.
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
            return  # Gone, or no longer a folder.
        self._levels.append(_Level(fd, iter(os.listdir(fd))))  # noqa: PTH208

    # Removed files that are still open.

    def _removed(self, top: int) -> int:
        """Return the bytes of removed files that the task still has open.

        Whatever folder they were in, they count once: for the work directory.
        """
        if self._is_cache:
            return 0
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
