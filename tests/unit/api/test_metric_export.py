"""Reports as rows, however many lines a report takes."""

import io
from types import SimpleNamespace
from typing import Any

from shoal.api.client import metric_export
from shoal.model.metric_lines import encode


class FakeClient:
    """Answers with the lines of a job's tasks, in pieces."""

    def __init__(self, *pieces: tuple[str, bytes]) -> None:
        self._pieces = pieces

    def get(self, _job: str, _tasks: int) -> Any:  # noqa: ANN401 - As protobuf has it.
        return SimpleNamespace(tasks=[])

    def logs(self, _request: object) -> Any:  # noqa: ANN401 - As protobuf has it.
        return [
            SimpleNamespace(task=task, attempt=1, data=data)
            for task, data in self._pieces
        ]


def rows(*pieces: tuple[str, bytes]) -> list[metric_export.MetricRow]:
    client: Any = FakeClient(*pieces)
    return list(metric_export.rows(client, "j"))


def test_a_report_of_many_metrics_is_one_row() -> None:
    many = {f"m{n}": float(n) for n in range(100)}
    first = b"".join(encode(1.5, many | {"step": 1.0}))
    second = b"".join(encode(1.75, many))
    cut = len(first) // 2
    pieces = ("j.main.0", first[:cut]), ("j.main.1", second), ("j.main.0", first[cut:])

    found = {row.task: row for row in rows(*pieces)}

    assert len(rows(*pieces)) == 2
    assert found["j.main.0"].metrics == found["j.main.1"].metrics == many
    file = io.StringIO()
    assert metric_export.write_csv(found.values(), list(many), file) == 2


def test_reports_of_one_moment_stay_apart() -> None:
    full = {f"m{n}": 1.0 for n in range(32)}
    again = encode(1.5, full) + encode(1.5, full)
    other_step = encode(1.5, full | {"step": 1.0}) + encode(
        1.5, {"a": 1.0, "step": 2.0}
    )

    assert len(rows(("j.main.0", b"".join(again)))) == 2
    assert len(rows(("j.main.0", b"".join(other_step)))) == 2
