"""Every report is on disk; curves and latest values follow it, also after a restart."""

import asyncio
from pathlib import Path

from shoal.model import metric_lines
from shoal.model.ids import Attempt, GroupId, JobId, NodeId, TaskId
from shoal.model.job import Task
from shoal.protocol.messages import Output
from shoal.runtime.monitoring.metric_log import READ_BYTES
from shoal.runtime.monitoring.output_log import OutputLog

TASK = Task(id=TaskId("j.main.0"), job=JobId("j"), group=GroupId("j.main"))
FIRST, SECOND = (Attempt(NodeId("s"), 1, n) for n in (1, 2))


def lines(first: int, last: int) -> bytes:
    reports = [{"loss": float(n), "step": float(n)} for n in range(first, last)]
    return b"".join(metric_lines.encode(n, m)[0] for n, m in enumerate(reports))


def told(log: OutputLog, attempt: Attempt, offset: int, data: bytes) -> None:
    output = Output(attempt=attempt, stream="metrics", offset=offset, data=data)
    log.show(TASK, output)


def latest(log: OutputLog) -> dict[str, float]:
    asyncio.run(log.metrics.catch_up([TASK.id]))
    return log.metrics.latest(TASK.id)


def values(log: OutputLog) -> list[float]:
    points = log.metrics.curves.since(TASK.id, -1.0)["loss"]
    return [point.value for point in points]


def test_reports_are_there_at_once_and_a_repeat_changes_nothing(tmp_path: Path) -> None:
    log = OutputLog(tmp_path)
    one, two = lines(0, 3), lines(3, 5)

    told(log, FIRST, 0, one)
    told(log, FIRST, len(one), two)
    told(log, FIRST, 0, one)

    assert log.metrics.latest(TASK.id) == {"loss": 4.0, "step": 4.0}
    assert values(log) == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_metrics_outlive_a_restart_and_go_on_after_it(tmp_path: Path) -> None:
    one, two = lines(0, 3), lines(3, 5)
    told(OutputLog(tmp_path), FIRST, 0, one)

    log = OutputLog(tmp_path)
    told(log, FIRST, len(one), two)

    assert log.metrics.latest(TASK.id) == {}  # Nobody has looked yet.
    assert latest(log) == {"loss": 4.0, "step": 4.0}
    assert values(log) == [0.0, 1.0, 2.0, 3.0, 4.0]
    told(log, SECOND, 0, lines(9, 10))
    assert latest(log)["loss"] == 9.0


def test_a_piece_that_comes_late_or_never_costs_only_itself(tmp_path: Path) -> None:
    log = OutputLog(tmp_path)
    one, two, three = lines(0, 2), lines(2, 4), lines(4, 6)

    told(log, FIRST, 0, one)
    told(log, FIRST, len(one) + len(two), three)
    assert latest(log)["loss"] == 5.0
    assert values(log) == [0.0, 1.0, 4.0, 5.0]

    told(log, FIRST, len(one), two)
    again = OutputLog(tmp_path)
    assert latest(again)["loss"] == 5.0
    assert values(again) == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def test_a_hole_of_any_size_and_what_is_no_report_are_passed_over(
    tmp_path: Path,
) -> None:
    log = OutputLog(tmp_path)
    told(log, FIRST, 0, b"nonsense\n[1]\n[1, 2, []]\n" + lines(0, 1))
    told(log, FIRST, 3 * READ_BYTES, lines(7, 8))

    assert latest(log)["loss"] == 7.0
    assert values(log) == [0.0, 7.0]
