"""Tell schedulers which code trees and images a worker has cached.

The report is kept across restarts in a small file, newest `MARKS_MAX` names. It is
only a hint: a tree evicted in the meantime is fetched again by the task that needs it.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, final

import msgspec

from shoal.core.events import CacheChanged
from shoal.model.caches import MARKS_MAX, TREE, mark_of
from shoal.model.ids import BlobId
from shoal.runtime.membership.shoal_membership import write_private

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from shoal.core.events import Event


@final
class CacheReport:
    """The most recently used trees and images cached here."""

    def __init__(
        self,
        file: Path,
        is_whole: Callable[[BlobId], bool],
        feed: Callable[[Event], None],
    ) -> None:
        """Check trees with `is_whole`, which blocks; report changes to `feed`."""
        self._file = file
        self._is_whole = is_whole
        self._feed = feed
        self._names: list[str] = []  # newest last, at most MARKS_MAX
        self._evicted: int | None = None  # count at the last `look`
        self._writing: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Wait until the file is written."""
        if self._writing is not None:
            await asyncio.gather(self._writing, return_exceptions=True)

    def note(self, name: str) -> None:
        """Mark a tree or image as cached; report it if it is new."""
        names = self._names
        if names and names[-1] == name:
            return
        is_news = name not in names
        if not is_news:
            names.remove(name)
        names.append(name)
        if is_news:
            del names[:-MARKS_MAX]
            self._changed()

    async def look(self, evicted: int) -> None:
        """Drop names that were evicted; on the first call, load the file first.

        `evicted` is the store's count of evictions. Call periodically: while the
        count is unchanged, nothing is done.
        """
        if evicted == self._evicted:
            return
        if self._evicted is None:
            earlier = await asyncio.to_thread(self._read)
            self._names = [n for n in earlier if n not in self._names] + self._names
        self._evicted = evicted
        before = list(self._names)
        gone = set(before) - set(await asyncio.to_thread(self._left_of, before))
        self._names = [n for n in self._names if n not in gone][-MARKS_MAX:]
        if self._names or gone:
            self._changed()

    def _changed(self) -> None:
        self._tell()
        before, names = self._writing, list(self._names)
        self._writing = asyncio.get_running_loop().create_task(
            self._write(before, names)
        )

    def _tell(self) -> None:
        self._feed(CacheChanged(tuple(map(mark_of, reversed(self._names)))))

    def _read(self) -> list[str]:
        try:
            found = msgspec.json.decode(self._file.read_bytes(), type=list[str])
        except (FileNotFoundError, msgspec.MsgspecError):
            return []  # It fills up again.
        return found[-MARKS_MAX:]

    def _left_of(self, names: list[str]) -> list[str]:
        return [name for name in names if not name.startswith(TREE) or self._has(name)]

    def _has(self, name: str) -> bool:
        return self._is_whole(BlobId(name.removeprefix(TREE)))

    async def _write(self, before: asyncio.Task[None] | None, names: list[str]) -> None:
        if before is not None:
            await asyncio.wait((before,))
        data = msgspec.json.encode(names)
        with contextlib.suppress(OSError):  # The next run starts without it.
            await asyncio.to_thread(write_private, self._file, data)
