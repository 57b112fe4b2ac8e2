"""Output is read from its end as well as from its beginning."""

from pathlib import Path

import pytest

from shoal.api.service.log_reader import LogReader
from shoal.model.ids import Attempt, NodeId, TaskId
from shoal.runtime.monitoring.output_log import OutputLog
from shoal.runtime.monitoring.output_times import (
    GAP_S,
    OutputTimes,
    path_of,
    read_times,
)

TASK = TaskId("j.main.0")


def written(folder: Path, data: bytes) -> Path:
    path = OutputLog(folder).path(TASK, Attempt(NodeId(""), 1, 1), "stdout")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(data)
    return path


def test_only_the_end_is_read_at_first_and_then_all_that_is_new(tmp_path: Path) -> None:
    written(tmp_path, b"0123456789")
    reader = LogReader(OutputLog(tmp_path), [TASK], last_bytes=4)

    [first] = reader.read()
    written(tmp_path, b"abcdefgh")
    [second] = reader.read()

    assert (first.offset, first.data) == (6, b"6789")
    assert (second.offset, second.data) == (10, b"abcdefgh")
    assert reader.read() == []


def test_what_is_short_is_read_whole(tmp_path: Path) -> None:
    written(tmp_path, b"01")
    reader = LogReader(OutputLog(tmp_path), [TASK], last_bytes=4)

    assert [piece.data for piece in reader.read()] == [b"01"]


def test_what_was_empty_at_first_is_read_from_its_beginning(tmp_path: Path) -> None:
    written(tmp_path, b"")
    reader = LogReader(OutputLog(tmp_path), [TASK], last_bytes=4)

    assert reader.read() == []
    written(tmp_path, b"0123456789")

    assert [piece.data for piece in reader.read()] == [b"0123456789"]


@pytest.mark.parametrize(
    ("text", "lines", "rest"),
    [
        (b"a\nb\nc\n", 2, b"b\nc\n"),
        (b"a\nb\nc", 2, b"b\nc"),
        (b"a\n\n\n", 2, b"\n\n"),
        (b"a\nb\n", 9, b"a\nb\n"),
        (b"x" * 70_000 + b"\nlast\n", 1, b"last\n"),
        (b"y\n" * 50_000, 40_000, b"y\n" * 40_000),
    ],
)
def test_the_last_lines_are_found_from_the_end(
    tmp_path: Path, text: bytes, lines: int, rest: bytes
) -> None:
    written(tmp_path, text)
    reader = LogReader(OutputLog(tmp_path), [TASK], last_lines=lines)

    assert b"".join(piece.data for piece in reader.read()) == rest


def test_lines_since_a_time_come_whole_and_with_their_times(tmp_path: Path) -> None:
    path = written(tmp_path, b"old\nnew ")
    times = OutputTimes()
    times.note(path, 0, 100.0)
    times.note(path, 4, 200.0)
    written(tmp_path, b"line\n")
    times.note(path, 8, 200.01)  # Too soon after the last to be worth a record.
    reader = LogReader(OutputLog(tmp_path), [TASK], since_s=150.0, times=True)

    [piece] = reader.read()

    assert piece.data == b"new line\n"
    assert [(each.offset, each.at_s) for each in piece.times] == [(4, 200.0)]


def test_a_line_that_began_before_that_time_is_told_from_its_beginning(
    tmp_path: Path,
) -> None:
    path = written(tmp_path, b"old\nbegun, ended\n")
    times = OutputTimes()
    times.note(path, 0, 100.0)
    times.note(path, 11, 200.0)
    reader = LogReader(OutputLog(tmp_path), [TASK], since_s=150.0)

    assert [piece.data for piece in reader.read()] == [b"begun, ended\n"]


def test_times_outlive_a_restart_and_grow_slower_than_output(tmp_path: Path) -> None:
    path = written(tmp_path, b"x" * 2_000)
    for first in (0, 1_000):  # Two lives of a node.
        times = OutputTimes()
        for n in range(first, first + 1_000):
            times.note(path, n, 1e6 + n * GAP_S / 4)
            times.note(path, n // 2, 1e6 + n)  # Repeated output is not news.

    kept = read_times(path_of(path))

    assert 0 < len(kept) < 2_000 / 4
    assert [each.offset for each in kept] == sorted({each.offset for each in kept})
