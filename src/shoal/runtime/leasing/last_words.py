"""Find in what a failed task wrote why it failed: one line for people."""

from __future__ import annotations

import re
from typing import Final, final

from shoal.model.text.texts import one_line

KEPT_BYTES: Final = 16_384
"""The end of stderr that is looked at; a traceback of torch has some 4 kB."""

LINE_LENGTH_MAX: Final = 300
_TRACEBACK: Final = "Traceback (most recent call last):"
_RANK: Final = re.compile(r"^\[rank\d+\]: ?")


@final
class LastWords:
    """The end of what one task wrote to stderr."""

    def __init__(self) -> None:
        self._kept = bytearray()

    def add(self, data: bytes) -> None:
        """Keep the latest bytes."""
        self._kept += data
        del self._kept[:-KEPT_BYTES]

    def error(self) -> str:
        """Return the line that tells why it failed: empty if it wrote nothing.

        That is an exception below a traceback, what we print as an error, or whatever
        came last.
        """
        text = self._kept.decode("utf-8", "replace")
        lines = [_RANK.sub("", line) for line in text.splitlines()]
        lines = [line for line in lines if line.strip()]
        found = _exception(lines) or _stated(lines) or (lines[-1] if lines else "")
        return one_line(found.strip())[:LINE_LENGTH_MAX]


def _exception(lines: list[str]) -> str:
    """Return the exception of the last traceback that is whole."""
    places = [n for n, line in enumerate(lines) if line.strip() == _TRACEBACK]
    for place in reversed(places):
        for line in lines[place + 1 :]:
            if not line.startswith((" ", "\t")):
                return line
    return ""


def _stated(lines: list[str]) -> str:
    said = [line for line in lines if line.startswith("error: ")]
    return said[-1].removeprefix("error: ") if said else ""
