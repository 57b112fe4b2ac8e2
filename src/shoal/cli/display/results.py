"""Results of a sweep in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from shoal.api.results import best_first, measured, results
from shoal.cli.terminal import safe_line

if TYPE_CHECKING:
    from shoal.api.results import Order
    from shoal.api.shoal_pb2 import Job

METRICS_SHOWN_MAX: Final = 6
NAME_SHOWN: Final = 40


def has_results(job: Job) -> bool:
    """Whether a job has tasks to compare: points of a sweep that reported metrics."""
    compared = [task for task in job.tasks if task.label and task.metrics]
    return len(compared) > 1


def result_table(
    job: Job, order: Order | None, rows_max: int | None = None
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return headings and rows of a table of results, the best first."""
    found = results(job, order)
    names = measured(found, _compared(job, order))[:METRICS_SHOWN_MAX]
    headings = ("TASK", "STATE", *(safe_line(name) for name in names), "NODE", "WHY")
    rows = [
        (
            safe_line(row.task)[:NAME_SHOWN],
            row.state,
            *(figure(row.metrics.get(name)) for name in names),
            row.node,
            row.reason[:72],
        )
        for row in found[:rows_max]
    ]
    return headings, rows


def _compared(job: Job, order: Order | None) -> Order | None:
    """Return the metric by which tasks are compared, however they are sorted."""
    is_metric = order is not None and any(order.name in t.metrics for t in job.tasks)
    return order if is_metric else best_first(job)


def figure(value: float | None) -> str:
    """Format a metric briefly."""
    return "" if value is None else f"{value:.5g}"


def best_text(job: Job, order: Order | None) -> str:
    """Name the best task and its metric; nothing if there is no metric."""
    order = _compared(job, order)
    found = results(job, order)
    if order is None or not found or order.name not in found[0].metrics:
        return ""
    best = found[0]
    value = figure(best.metrics[order.name])
    return f"{safe_line(best.task)}  {safe_line(order.name)} {value}"
