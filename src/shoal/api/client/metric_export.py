"""Every point that the tasks of a job reported, as rows, CSV or a Parquet file."""

from __future__ import annotations

import csv
import importlib
import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TextIO

from shoal.api import shoal_pb2 as pb
from shoal.api.results import TASKS_MAX
from shoal.errors import UsageError
from shoal.model import metric_lines
from shoal.model.text.texts import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from shoal.api.client.client import Client

REST_MAX: Final = 1 << 20
ROWS_AT_ONCE: Final = 65_536
HEAD: Final = ("task", "label", "attempt", "time", "step")


class MetricRow(NamedTuple):
    """One report of a task; `step` is NaN if it counts none."""

    task: str
    label: str
    attempt: int
    at_s: float  # since 1970, by the clock of the worker
    step: float
    metrics: dict[str, float]


def rows(client: Client, job: str, task: str = "") -> Iterator[MetricRow]:
    """Go through all reports of a job's tasks, also those of earlier attempts."""
    tasks = client.get(job, TASKS_MAX).tasks
    labels = {each.id: one_line(each.label) for each in tasks}
    request = pb.LogsRequest(
        job=job, task=task, stream=pb.STREAM_METRICS, all_attempts=True
    )
    rests: dict[tuple[str, int], bytes] = {}
    parts: dict[tuple[str, int], MetricRow] = {}
    for piece in client.logs(request):
        key = (piece.task, piece.attempt)
        whole, end, rest = (rests.pop(key, b"") + piece.data).rpartition(b"\n")
        rests[key] = rest[-REST_MAX:]
        for each in metric_lines.decode(whole + end):
            label = labels.get(piece.task, "")
            row = MetricRow(one_line(piece.task), label, piece.attempt, *each)
            if (part := parts.pop(key, None)) is not None:
                if metric_lines.goes_on(each, part.at_s, part.step, part.metrics):
                    row = row._replace(metrics=part.metrics | row.metrics)
                else:
                    yield part
            if len(each.metrics) == metric_lines.IN_A_LINE_MAX:
                parts[key] = row  # The next line may be of the same report.
            else:
                yield row
    yield from parts.values()


def names_in(found: Iterable[MetricRow]) -> list[str]:
    """Return the names of all metrics, in the order of their first report."""
    return list(dict.fromkeys(name for row in found for name in row.metrics))


def column_of(name: str) -> str:
    """Return the name of a metric's column, which no other column has."""
    return f"{name}_" if name in HEAD else name


def write_csv(found: Iterable[MetricRow], names: Sequence[str], file: TextIO) -> int:
    """Write rows as CSV with a column for each metric; return how many."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow((*HEAD, *map(column_of, names)))
    count = 0
    for row in found:
        step = "" if math.isnan(row.step) else f"{row.step:.17g}"
        values = (_number(row.metrics.get(name)) for name in names)
        task = row.task.partition(".")[2]
        head = (task, row.label, row.attempt, f"{row.at_s:.3f}", step)
        writer.writerow((*head, *values))
        count += 1
    return count


def _number(value: float | None) -> str:
    return "" if value is None else repr(value)


def write_parquet(found: Iterable[MetricRow], names: Sequence[str], path: Path) -> int:
    """Write rows to a Parquet file, a part at a time; return how many."""
    pa, pq = _pyarrow()
    kinds: list[tuple[str, Any]] = [
        ("task", pa.string()),
        ("label", pa.string()),
        ("attempt", pa.int32()),
        ("time", pa.timestamp("ms", "UTC")),
        ("step", pa.float64()),
    ]
    own = ((column_of(name), pa.float64()) for name in names)
    schema = pa.schema([*kinds, *own])
    count = 0
    with pq.ParquetWriter(path, schema) as writer:
        for part in _parts(found):
            writer.write_table(pa.table(_columns(part, names), schema=schema))
            count += len(part)
    return count


def _pyarrow() -> tuple[Any, Any]:
    """Import what writes Parquet: few have it, so nothing of ours needs it."""
    try:
        return importlib.import_module("pyarrow"), importlib.import_module(
            "pyarrow.parquet"
        )
    except ImportError:
        raise UsageError(
            "cannot write Parquet",
            because="pyarrow is not installed where this command runs",
            hint="`pip install pyarrow`, or use --csv",
        ) from None


def _parts(found: Iterable[MetricRow]) -> Iterator[list[MetricRow]]:
    part: list[MetricRow] = []
    for row in found:
        part.append(row)
        if len(part) == ROWS_AT_ONCE:
            yield part
            part = []
    if part:
        yield part


def _columns(part: list[MetricRow], names: Sequence[str]) -> dict[str, list[Any]]:
    return {
        "task": [row.task.partition(".")[2] for row in part],
        "label": [row.label for row in part],
        "attempt": [row.attempt for row in part],
        "time": [round(row.at_s * 1_000) for row in part],
        "step": [None if math.isnan(row.step) else row.step for row in part],
        **{column_of(n): [row.metrics.get(n) for row in part] for n in names},
    }
