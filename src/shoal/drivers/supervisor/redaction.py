"""Replace secrets in a task's output, even if split between pieces.

A secret becomes as many stars as it has bytes, so offsets do not change. Secrets
shorter than `SECRET_BYTES_MIN` are ignored: they would match everywhere.

Supervisors use this too, so it may import only the standard library.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Iterable

SECRET_BYTES_MIN: Final = 4
STAR: Final = b"*"


@final
class Redaction:
    """The secrets of one attempt; make a `Redacted` for each stream."""

    def __init__(self, secrets: Iterable[str]) -> None:
        # A secret of several lines, such as a key, may be written by line.
        values = [part for text in secrets for part in (text, *text.splitlines())]
        found = {v.encode() for v in values if len(v.encode()) >= SECRET_BYTES_MIN}
        self.values = tuple(sorted(found, key=lambda value: (-len(value), value)))
        self._pattern = re.compile(b"|".join(map(re.escape, self.values)))

    def __bool__(self) -> bool:
        return bool(self.values)

    def whole(self, data: bytes) -> bytes:
        """Return complete data without the secrets."""
        if not self.values:
            return data
        return self._pattern.sub(lambda found: STAR * len(found[0]), data)

    def text(self, text: str) -> str:
        """Return a text without the secrets."""
        return self.whole(text.encode()).decode() if self.values else text

    def unfinished(self, data: bytes) -> int:
        """Return how many bytes at the end may begin a secret."""
        longest = len(self.values[0]) - 1 if self.values else 0
        ends = [found.end() for found in self._pattern.finditer(data)]
        after = len(data) - (ends[-1] if self.values and ends else 0)
        for size in range(min(longest, after), 0, -1):
            tail = data[-size:]
            if any(value.startswith(tail) for value in self.values):
                return size
        return 0


@final
class Redacted:
    """One stream; holds back a possible part of a secret until more data comes."""

    def __init__(self, redaction: Redaction) -> None:
        self._redaction = redaction
        self._held = b""
        self._offset = 0

    def feed(self, offset: int, data: bytes) -> tuple[int, bytes]:
        """Add data; return the part that may be passed on, with its offset first."""
        if not self._held:
            self._offset = offset
        data = self._held + data
        keep = self._redaction.unfinished(data)
        shown = self._redaction.whole(data[: len(data) - keep])
        self._held = data[len(data) - keep :] if keep else b""
        start = self._offset
        self._offset += len(shown)
        return start, shown

    def end(self) -> tuple[int, bytes]:
        """Return the data held back at the end of the stream, with its offset first."""
        held, self._held = self._held, b""
        return self._offset, self._redaction.whole(held)
