"""Output of tasks as it arrives, on the stream that it was written to."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, BinaryIO

from shoal.api import shoal_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterable


def follow(
    pieces: Iterable[pb.LogPiece], *, prefixed: bool, aside: bool = False
) -> None:
    """Print pieces until there are no more; `prefixed`, each line names its task.

    `aside`, all of them go to stderr, because stdout is for something else.
    """
    rests: dict[tuple[str, int], bytes] = {}
    for piece in pieces:
        data = piece.data
        if prefixed:
            key = (piece.task, piece.stream)
            *lines, rests[key] = (rests.get(key, b"") + data).split(b"\n")
            data = b"".join(_line(piece.task, line) for line in lines)
        _write(pb.STREAM_STDERR if aside else piece.stream, data)
    for (task, stream), rest in rests.items():
        if rest:
            _write(pb.STREAM_STDERR if aside else stream, _line(task, rest))


def _line(task: str, line: bytes) -> bytes:
    return task.partition(".")[2].encode() + b" | " + line + b"\n"


def _write(stream: int, data: bytes) -> None:
    out: BinaryIO = sys.stdout.buffer
    if stream == pb.STREAM_STDERR:
        out = sys.stderr.buffer
    out.write(data)
    out.flush()
