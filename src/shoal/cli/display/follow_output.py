"""Print task output as it arrives, on the stream it was written to."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, BinaryIO, final

from shoal.api import shoal_pb2 as pb
from shoal.cli.display.task_output import Screened
from shoal.cli.terminal import safe_line

if TYPE_CHECKING:
    from collections.abc import Iterable


def follow(
    pieces: Iterable[pb.LogPiece],
    *,
    prefixed: bool,
    aside: bool = False,
    raw: bool = False,
) -> None:
    """Print pieces of output until they end.

    With `prefixed`, each line names its task. With `aside`, everything goes to stderr
    because stdout is used for something else. Escape sequences that could harm a
    terminal are removed, unless the user asked for `raw` output.
    """
    outs = _Outs(raw=raw)
    try:
        _follow(pieces, outs, prefixed=prefixed, aside=aside)
    finally:
        outs.close()


def _follow(
    pieces: Iterable[pb.LogPiece], outs: _Outs, *, prefixed: bool, aside: bool
) -> None:
    rests: dict[tuple[str, int], bytes] = {}
    for piece in pieces:
        data = piece.data
        if prefixed:
            key = (piece.task, piece.stream)
            *lines, rests[key] = (rests.get(key, b"") + data).split(b"\n")
            data = b"".join(_line(piece.task, line) for line in lines)
        outs.write(pb.STREAM_STDERR if aside else piece.stream, data)
    for (task, stream), rest in rests.items():
        if rest:
            outs.write(pb.STREAM_STDERR if aside else stream, _line(task, rest))


def _line(task: str, line: bytes) -> bytes:
    return safe_line(task.partition(".")[2]).encode() + b" | " + line + b"\n"


@final
class _Outs:
    """The two output streams of this process."""

    def __init__(self, *, raw: bool) -> None:
        self._raw = raw
        self._open: dict[bool, BinaryIO | Screened] = {}

    def write(self, stream: int, data: bytes) -> None:
        is_error = stream == pb.STREAM_STDERR
        if is_error not in self._open:
            text = sys.stderr if is_error else sys.stdout
            is_plain = self._raw or not text.isatty()
            self._open[is_error] = text.buffer if is_plain else Screened(text.buffer)
        out = self._open[is_error]
        out.write(data)
        out.flush()

    def close(self) -> None:
        for out in self._open.values():
            if isinstance(out, Screened):
                out.close()
