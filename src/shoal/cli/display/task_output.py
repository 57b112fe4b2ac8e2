"""Filter task output on its way to a terminal.

The job is the user's own, but it ran on other people's machines, which can write
into its output. A terminal therefore gets text, tabs, carriage returns and colours,
and nothing that sets its title, moves its cursor, queries it or fills its clipboard.
Files and pipes get every byte unchanged.
"""

from __future__ import annotations

import codecs
import re
import sys
from collections import deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING, BinaryIO, Final, final

from shoal.api import shoal_pb2 as pb
from shoal.api.results import task_name
from shoal.cli.terminal import safe_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import BinaryIO

PENDING_MAX: Final = 4_096
"""Longest unfinished escape sequence; anything longer is treated as text."""

RESET: Final = b"\x1b[0m"

_COLOUR: Final = r"\x1b\[[0-9;:]{0,64}m"
_CONTROL: Final = re.compile(
    rf"(?P<colour>{_COLOUR})"
    r"|\x1b\[[0-?]*[ -/]*[@-~]"  # cursor, screen, modes, questions
    r"|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)"  # title, clipboard, links
    r"|\x1b[ -/]*[0-~]"
    r"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
_UNFINISHED: Final = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b\n]*\x1b?|[ -/]*)?\Z"
)


@final
class Screened:
    """A stream to a terminal that removes harmful escape sequences."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pending = ""  # The begin of a sequence; at most PENDING_MAX.
        self._is_coloured = False

    def write(self, data: bytes) -> None:
        """Write the visible part of some bytes, which may end mid-character."""
        text = self._pending + self._decoder.decode(data)
        unfinished = _UNFINISHED.search(text)
        self._pending = ""
        if unfinished is not None and len(unfinished[0]) <= PENDING_MAX:
            self._pending = unfinished[0]
            text = text[: unfinished.start()]
        self._out.write(_CONTROL.sub(self._kept, text).encode())

    def close(self) -> None:
        """Reset colours that a task left on; the stream itself stays open."""
        if self._is_coloured:
            self._out.write(RESET)
            self._out.flush()

    def flush(self) -> None:
        """Flush the stream."""
        self._out.flush()

    def _kept(self, found: re.Match[str]) -> str:
        if found["colour"] is None:
            return ""
        self._is_coloured = True
        return found["colour"]


def screened(data: bytes) -> str:
    """Return a line of task output without escape sequences."""
    text = data.decode("utf-8", "replace").rpartition("\r")[2]
    return _CONTROL.sub("", text).replace("\x1b", "")


def follow(
    pieces: Iterable[pb.LogPiece],
    *,
    names: Mapping[str, str] | None,
    times: bool = False,
    aside: bool = False,
    raw: bool = False,
) -> None:
    """Print pieces of output until they end.

    With `names` of tasks by their ids, each line names its task; with `times`, it
    begins with when it came. With `aside`,
    everything goes to stderr because stdout is used for something else. Escape
    sequences that could harm a terminal are removed, unless the user asked for `raw`
    output.
    """
    outs = Outs(raw=raw)
    try:
        _follow(pieces, outs, names, times=times, aside=aside)
    finally:
        outs.close()


def _follow(
    pieces: Iterable[pb.LogPiece],
    outs: Outs,
    names: Mapping[str, str] | None,
    *,
    times: bool,
    aside: bool,
) -> None:
    rests: dict[tuple[str, int], _Rest] = {}
    for piece in pieces:
        if piece.missing:
            outs.write(pb.STREAM_STDERR, _missing(piece, names))
            continue
        data = piece.data
        if names is not None or times:
            key = (piece.task, piece.stream)
            name = None if names is None else _name(piece.task, names)
            rest = rests.setdefault(key, _Rest(name, times=times))
            data = b"".join(rest.lines(piece))
        outs.write(pb.STREAM_STDERR if aside else piece.stream, data)
    for (_, stream), rest in rests.items():
        outs.write(pb.STREAM_STDERR if aside else stream, b"".join(rest.last()))


def _missing(piece: pb.LogPiece, names: Mapping[str, str] | None) -> bytes:
    where = "" if names is None else f"{_name(piece.task, names)}, "
    which = f"{where}attempt {piece.attempt}"
    return safe_line(f"{which}: lines may be missing: {piece.missing}").encode() + b"\n"


@final
class _Rest:
    """The unfinished line of a stream, and what is put before its lines."""

    def __init__(self, name: str | None, *, times: bool) -> None:
        self._head = b"" if name is None else safe_line(name).encode() + b" | "
        self._times = times
        self._data = b""
        self._at_s = 0.0  # when the unfinished line began

    def lines(self, piece: pb.LogPiece) -> Iterator[bytes]:
        """Yield the lines that end in a piece, whole."""
        came = deque(piece.times)
        offset = piece.offset
        for line in piece.data.splitlines(keepends=True):
            while came and came[0].offset <= offset:
                at_s = came.popleft().at_s
                self._at_s = self._at_s if self._data else at_s
            self._data += line
            offset += len(line)
            if line.endswith(b"\n"):
                yield from self.last()

    def last(self) -> Iterator[bytes]:
        """Yield the unfinished line, if there is one."""
        if self._data:
            when = _when(self._at_s) if self._times else b""
            yield self._head + when + self._data.removesuffix(b"\n") + b"\n"
        self._data = b""


def _when(at_s: float) -> bytes:
    if not at_s:
        return b"-" * 24 + b" "  # It came before times were kept.
    moment = datetime.fromtimestamp(at_s, UTC).isoformat(timespec="milliseconds")
    return moment.replace("+00:00", "Z").encode() + b" "


def names_of(job: pb.Job) -> dict[str, str]:
    """Return what the tasks of a job are called, by their ids."""
    return {task.id: task_name(task) for task in job.tasks}


def _name(task: str, names: Mapping[str, str]) -> str:
    return names.get(task) or task.partition(".")[2]


@final
class Outs:
    """The two output streams of this process."""

    def __init__(self, *, raw: bool) -> None:
        self._raw = raw
        self._open: dict[bool, BinaryIO | Screened] = {}

    def write(self, stream: int, data: bytes) -> None:
        """Write to one of them; a terminal gets what cannot harm it."""
        is_error = stream == pb.STREAM_STDERR
        if is_error not in self._open:
            text = sys.stderr if is_error else sys.stdout
            is_plain = self._raw or not text.isatty()
            self._open[is_error] = text.buffer if is_plain else Screened(text.buffer)
        out = self._open[is_error]
        out.write(data)
        out.flush()

    def close(self) -> None:
        """Reset colours that were left on."""
        for out in self._open.values():
            if isinstance(out, Screened):
                out.close()
