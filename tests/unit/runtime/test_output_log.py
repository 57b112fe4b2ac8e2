import asyncio
from pathlib import Path

from shoal.model.ids import Attempt, GroupId, JobId, NodeId, TaskId
from shoal.model.job import Task
from shoal.protocol.messages import Output
from shoal.runtime.monitoring import output_log
from shoal.runtime.monitoring.output_log import OutputLog

ATTEMPT = Attempt(NodeId("s"), 1, 1)
TASK = Task(id=TaskId("j.main.0"), job=JobId("j"), group=GroupId("j.main"))


def piece(offset: int = 0) -> Output:
    return Output(attempt=ATTEMPT, stream="stdout", offset=offset, data=b"hello")


def test_what_a_task_writes_is_kept(tmp_path: Path) -> None:
    kept = OutputLog(tmp_path)

    kept.show(TASK, piece())

    assert kept.path(TASK.id, ATTEMPT, "stdout").read_bytes() == b"hello"
    assert kept.trouble(TASK.id) == ""
    kept.close()


def test_what_cannot_be_written_is_told_and_ends_nothing(tmp_path: Path) -> None:
    kept = OutputLog(tmp_path)
    (tmp_path / TASK.id).write_text("a file where the folder would be")

    kept.show(TASK, piece())

    assert kept.trouble(TASK.id).startswith("its output is cut: ")
    kept.close()


def test_what_is_beyond_all_measure_is_told_too(tmp_path: Path) -> None:
    kept = OutputLog(tmp_path)

    kept.show(TASK, piece(offset=output_log.OUTPUT_FILE_BYTES_MAX))

    assert kept.trouble(TASK.id) == "its output is cut: over 1 GiB"
    assert kept.attempts(TASK.id) == []
    kept.close()


def test_the_output_of_forgotten_tasks_is_removed(tmp_path: Path) -> None:
    kept = OutputLog(tmp_path)
    other = Task(id=TaskId("old.main/x.0"), job=JobId("old"), group=GroupId("old.x"))
    kept.show(TASK, piece())
    kept.show(other, piece())
    assert kept.attempts(other.id) != []

    asyncio.run(kept.sweep(lambda: [TASK.job]))

    assert kept.attempts(other.id) == []
    assert kept.path(TASK.id, ATTEMPT, "stdout").read_bytes() == b"hello"
    kept.close()


def test_a_task_that_begins_while_the_disk_is_looked_at_keeps_its_output(
    tmp_path: Path,
) -> None:
    kept = OutputLog(tmp_path)

    def known() -> list[JobId]:
        kept.show(TASK, piece())  # It is new: the look at the disk missed it.
        return []

    asyncio.run(kept.sweep(known))

    assert kept.path(TASK.id, ATTEMPT, "stdout").read_bytes() == b"hello"
    kept.close()


def test_nothing_is_removed_where_nothing_was_written(tmp_path: Path) -> None:
    asyncio.run(OutputLog(tmp_path / "none").sweep(list))
