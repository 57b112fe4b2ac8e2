"""When output came: beside each output file, a file of offsets and times.

A record says that what begins at its offset came at its time, by the clock of this
node. Between two records at least `GAP_S` pass, and more the more there are: a task
that prints for a week leaves megabytes, not gigabytes. So a time may be too early by
the gap.
"""

from __future__ import annotations

import os
import struct
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple, final

if TYPE_CHECKING:
    from pathlib import Path

SUFFIX: Final = ".times"
RECORD: Final = struct.Struct("<Qd")  # offset in bytes, seconds since 1970
GAP_S: Final = 0.05
RECORDS_PER_GAP: Final = 10_000
"""After this many records the gap has doubled, then tripled, and so on."""

FILES_KNOWN_MAX: Final = 1_024


class OutputTime(NamedTuple):
    """What begins at `offset` came at `at_s`."""

    offset: int
    at_s: float


@final
class OutputTimes:
    """Writes such files."""

    def __init__(self) -> None:
        self._known: OrderedDict[Path, _Known] = OrderedDict()

    def note(self, output: Path, offset: int, wall_s: float) -> None:
        """Note when a piece of output came; raises `OSError` on a full disk."""
        path = path_of(output)
        known = self._known.get(path)
        if known is None:
            known = self._known[path] = _Known(read_times(path))
            if len(self._known) > FILES_KNOWN_MAX:
                self._known.popitem(last=False)
        if not known.is_news(offset, wall_s):
            return
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        descriptor = os.open(path, flags, 0o600)
        try:
            os.write(descriptor, RECORD.pack(offset, wall_s))
        finally:
            os.close(descriptor)
        known.count, known.at_s = known.count + 1, wall_s
        self._known.move_to_end(path)


@final
class _Known:
    """What is known of one file: how many records, the last, the highest offset."""

    def __init__(self, times: list[OutputTime]) -> None:
        self.count = len(times)
        self.at_s = times[-1].at_s if times else 0.0
        self._reached = times[-1].offset if times else -1

    def is_news(self, offset: int, wall_s: float) -> bool:
        """Whether this is output that did not come before, long after the last."""
        if offset <= self._reached:
            return False  # A worker repeats its output after a broken link.
        self._reached = offset
        return wall_s - self.at_s >= GAP_S * (1 + self.count / RECORDS_PER_GAP)


def path_of(output: Path) -> Path:
    """Return the file of the times of an output file."""
    return output.with_name(output.name + SUFFIX)


def read_times(path: Path) -> list[OutputTime]:
    """Return the records of a file, by offset; none if there is no such file."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    whole = len(data) - len(data) % RECORD.size  # A crash may cut the last one.
    return [OutputTime(*each) for each in RECORD.iter_unpack(data[:whole])]
