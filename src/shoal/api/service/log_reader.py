"""Reads the output of tasks incrementally, each time from where it stopped."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, BinaryIO, Final, final

from shoal.api import shoal_pb2 as pb
from shoal.model.ids import Attempt, NodeId, TaskId

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.runtime.monitoring.output_log import OutputLog

PIECE_BYTES: Final = 65_536
PIECES_AT_ONCE: Final = 64

_STREAMS: Final = {
    "stdout": pb.STREAM_STDOUT,
    "stderr": pb.STREAM_STDERR,
    "metrics": pb.STREAM_METRICS,
}


@final
class LogReader:
    """A position in the output of some tasks. Blocking: use it in a thread."""

    def __init__(
        self,
        outputs: OutputLog,
        tasks: Sequence[TaskId],
        *,
        stream: pb.Stream = pb.STREAM_UNSPECIFIED,
        all_attempts: bool = False,
        last_bytes: int = 0,
    ) -> None:
        """Start `last_bytes` before the end of each file; 0 starts at its beginning."""
        self._outputs = outputs
        self._tasks = tasks
        self._stream = stream
        self._all = all_attempts
        self._last_bytes = last_bytes
        self._from: dict[TaskId, tuple[int, int]] = {}  # first attempt to show
        self._numbers: dict[TaskId, list[tuple[int, int]]] = {}
        self._offsets: dict[tuple[TaskId, int, int, str], int] = {}

    def read(self) -> list[pb.LogPiece]:
        """Return up to `PIECES_AT_ONCE` new pieces; empty if there are none now."""
        pieces: list[pb.LogPiece] = []
        for task in self._tasks:
            for generation, sequence, stream in self._kept(task):
                place = (task, generation, sequence, stream)
                while len(pieces) < PIECES_AT_ONCE and (piece := self._next(*place)):
                    pieces.append(piece)
        return pieces

    def _kept(self, task: TaskId) -> list[tuple[int, int, str]]:
        found = self._outputs.attempts(task)
        if not found:
            return []
        latest = found[-1][:2]
        first = self._from.setdefault(task, (0, 0) if self._all else latest)
        known = self._numbers.setdefault(task, [])
        known += sorted({kept[:2] for kept in found} - {*known})
        return [
            kept
            for kept in sorted(found, key=lambda kept: (kept[:2], kept[2] == "stderr"))
            if kept[:2] >= first and self._wants(_STREAMS[kept[2]])
        ]

    def _wants(self, stream: pb.Stream) -> bool:
        if self._stream == pb.STREAM_UNSPECIFIED:
            return stream != pb.STREAM_METRICS  # They are for programs.
        return stream == self._stream

    def _next(
        self, task: TaskId, generation: int, sequence: int, stream: str
    ) -> pb.LogPiece | None:
        key = (task, generation, sequence, stream)
        attempt = Attempt(NodeId(""), generation, sequence)
        with self._outputs.path(task, attempt, stream).open("rb") as file:
            offset = self._offsets.get(key, -1)
            if offset < 0:
                offset = self._beginning(file)
            file.seek(offset)
            data = file.read(PIECE_BYTES)
        self._offsets[key] = offset + len(data)
        if not data:
            return None
        return pb.LogPiece(
            task=task,
            stream=_STREAMS[stream],
            attempt=self._numbers[task].index((generation, sequence)) + 1,
            offset=offset,
            data=data,
        )

    def _beginning(self, file: BinaryIO) -> int:
        if not self._last_bytes:
            return 0
        return max(0, file.seek(0, os.SEEK_END) - self._last_bytes)
