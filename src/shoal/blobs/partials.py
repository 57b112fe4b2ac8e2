"""Blobs still being fetched: their size, their owner, and when they began.

Each counts with all the bytes that it will have, from its beginning: what is promised
to one cannot be promised to another. Who fetches it no more leaves it for the next who
wants it; such ones are the first to make room.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Partial(msgspec.Struct):
    size: int
    whose: str
    touched: float
    busy: bool = True


@final
class Partials:
    """The partial blobs of one store, by the names of their files."""

    def __init__(self) -> None:
        self.bytes = 0
        self._of: dict[str, _Partial] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._of

    def __len__(self) -> int:
        return len(self._of)

    def add(
        self, name: str, size: int, whose: str, now: float, *, busy: bool = True
    ) -> None:
        """Count a new one."""
        self.drop(name)
        self._of[name] = _Partial(size, whose, now, busy)
        self.bytes += size

    def take_up(self, name: str, whose: str, now: float) -> None:
        """Note that a fetch goes on with one."""
        found = self._of[name]
        found.whose, found.touched, found.busy = whose, now, True

    def grow(self, name: str, more: int) -> None:
        """Count one with more bytes than it was said to have."""
        if (found := self._of.get(name)) is not None:
            self.bytes += more
            found.size += more

    def touch(self, name: str, now: float) -> None:
        """Note that one has come further."""
        if (found := self._of.get(name)) is not None:
            found.touched = now

    def leave(self, name: str) -> None:
        """Note that no fetch goes on with one."""
        if (found := self._of.get(name)) is not None:
            found.busy = False

    def drop(self, name: str) -> None:
        """Count one no more."""
        if (found := self._of.pop(name, None)) is not None:
            self.bytes -= found.size

    def bytes_of(self, whose: str, besides: str) -> int:
        """Return how many bytes a requester has under way, besides one blob."""
        return sum(
            each.size
            for name, each in self._of.items()
            if each.whose == whose and each.busy and name != besides
        )

    def left(self, before: float) -> Iterator[str]:
        """Return blobs that no fetch has gone on with since then, oldest first."""
        found = [
            (each.touched, name)
            for name, each in self._of.items()
            if not each.busy and each.touched < before
        ]
        return (name for _, name in sorted(found))
