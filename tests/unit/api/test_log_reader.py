"""Output is read from its end as well as from its beginning."""

from pathlib import Path

from shoal.api.service.log_reader import LogReader
from shoal.model.ids import Attempt, NodeId, TaskId
from shoal.runtime.monitoring.output_log import OutputLog

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
