"""Reads the output of tasks incrementally, each time from where it stopped."""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, BinaryIO, Final, final

from shoal.api import shoal_pb2 as pb
from shoal.model.ids import Attempt, NodeId, TaskId
from shoal.runtime.monitoring.output_log import DOUBT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from shoal.runtime.monitoring.output_log import OutputLog
    from shoal.runtime.monitoring.output_times import OutputTime

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
        last_lines: int = 0,
        since_s: float = 0.0,
        times: bool = False,
    ) -> None:
        """Read each file from its beginning, or from the latest of the given places.

        These are so many bytes or lines before its end; and the line that was being
        written at `since_s`. With `times` pieces say when their bytes came.
        """
        self._outputs = outputs
        self._tasks = tasks
        self._stream = stream
        self._all = all_attempts
        self._last_bytes, self._last_lines = last_bytes, last_lines
        self._since_s, self._times = since_s, times
        self._from: dict[TaskId, tuple[int, int]] = {}  # first attempt to show
        self._numbers: dict[TaskId, list[tuple[int, int]]] = {}
        self._offsets: dict[tuple[TaskId, int, int, str], int] = {}
        self._doubted: set[tuple[TaskId, int, int]] = set()
        # Times of a file, and how far its output reached when they were read.
        self._came: dict[tuple[TaskId, int, int, str], tuple[list[OutputTime], int]]
        self._came = {}

    def read(self) -> list[pb.LogPiece]:
        """Return up to `PIECES_AT_ONCE` new pieces; empty if there are none now."""
        pieces: list[pb.LogPiece] = []
        for task in self._tasks:
            for generation, sequence, stream in self._kept(task):
                if stream == DOUBT:
                    continue
                place = (task, generation, sequence, stream)
                while len(pieces) < PIECES_AT_ONCE and (piece := self._next(*place)):
                    pieces.append(piece)
        return pieces or list(self._doubts())

    def _doubts(self) -> Iterator[pb.LogPiece]:
        """Yield why lines may be missing, once for each attempt."""
        for task in self._tasks:
            for generation, sequence, kind in self._kept(task):
                key = (task, generation, sequence)
                if kind != DOUBT or key in self._doubted:
                    continue
                attempt = Attempt(NodeId(""), generation, sequence)
                if why := self._outputs.doubted(task, attempt):
                    self._doubted.add(key)
                    number = self._numbers[task].index((generation, sequence)) + 1
                    yield pb.LogPiece(task=task, attempt=number, missing=why)

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
            if kept[:2] >= first and self._wants(kept[2])
        ]

    def _wants(self, name: str) -> bool:
        if self._stream == pb.STREAM_UNSPECIFIED or name == DOUBT:
            return name != "metrics"  # They are for programs.
        return _STREAMS[name] == self._stream

    def _next(
        self, task: TaskId, generation: int, sequence: int, stream: str
    ) -> pb.LogPiece | None:
        key = (task, generation, sequence, stream)
        place = (task, Attempt(NodeId(""), generation, sequence), stream)
        with self._outputs.path(*place).open("rb") as file:
            offset = self._offsets.get(key, -1)
            if offset < 0:
                offset = self._beginning(file, self._outputs.times(*place))
            size = file.seek(0, os.SEEK_END)
            file.seek(offset)
            data = file.read(PIECE_BYTES)
        self._offsets[key] = offset + len(data)
        if not data:
            return None
        piece = pb.LogPiece(
            task=task,
            stream=_STREAMS[stream],
            attempt=self._numbers[task].index((generation, sequence)) + 1,
            offset=offset,
            data=data,
        )
        if self._times:
            times, reached = self._came.get(key, ([], 0))
            if offset + len(data) > reached:
                times = self._outputs.times(*place)
                self._came[key] = (times, size)
            for each in within(times, offset, offset + len(data)):
                piece.times.add(offset=each.offset, at_s=each.at_s)
        return piece

    def _beginning(self, file: BinaryIO, times: list[OutputTime]) -> int:
        end = file.seek(0, os.SEEK_END)
        places = [0]
        if self._last_bytes:
            places.append(max(0, end - self._last_bytes))
        if self._last_lines:
            places.append(start_of_last(file, end, self._last_lines))
        if self._since_s and times:
            since = (each.offset for each in times if each.at_s >= self._since_s)
            places.append(start_of_line(file, min(end, next(since, end))))
        return max(places)


def within(times: list[OutputTime], begin: int, end: int) -> list[OutputTime]:
    """Return the times of the bytes from `begin` to `end`; the first may be earlier."""
    first = max(0, bisect_right(times, begin, key=lambda each: each.offset) - 1)
    last = bisect_left(times, end, key=lambda each: each.offset)
    return times[first:last]


def start_of_last(file: BinaryIO, end: int, lines: int) -> int:
    """Return where the last `lines` lines begin, reading backwards."""
    place, left = end, lines
    while place > 0:
        begin = max(0, place - PIECE_BYTES)
        file.seek(begin)
        data = file.read(place - begin)
        if place == end and data.endswith(b"\n"):
            data = data[:-1]  # It ends the last line, and begins none.
        found = data.count(b"\n")
        if found >= left:
            for _ in range(left):
                data = data[: data.rindex(b"\n")]
            return begin + len(data) + 1
        left -= found
        place = begin
    return 0


def start_of_line(file: BinaryIO, place: int) -> int:
    """Return where the line around an offset begins; a very long one is cut."""
    begin = max(0, place - PIECE_BYTES)
    file.seek(begin)
    return begin + file.read(place - begin).rfind(b"\n") + 1
