"""Read Microsoft's Philly trace: flat CSV, or the published nested JSON."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, cast

from shoal.errors import TraceError
from shoal.lab.traces.trace_files import json_items, rows
from shoal.lab.traces.values import TraceJob

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COLUMNS: Final = ("timestamp", "duration", "num_gpus")


def seconds_of(text: str) -> float:
    """Return a point in time, written as people do, in seconds; UTC unless it says.

    Fractions may be longer than Python's microseconds. Raises `ValueError`.
    """
    whole, point, fraction = text.strip().partition(".")
    digits = fraction.rstrip("Zz")
    at = datetime.fromisoformat(whole.removesuffix("Z").removesuffix("z"))
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return at.timestamp() + (float(f"0.{digits}") if point and digits else 0.0)


def flat_jobs(path: Path) -> Iterator[TraceJob]:
    """Read the flat form. Rows are in no order, and so are the jobs."""
    for number, row in enumerate(rows(path, COLUMNS)):
        try:
            submitted_s = seconds_of(row.text("timestamp"))
        except ValueError as error:
            raise row.wrong(
                "timestamp", "a time such as 2017-10-09 07:01:55"
            ) from error
        run_s = row.number("duration")
        yield TraceJob(
            id=str(number),
            submitted_s=submitted_s,
            run_s=run_s,
            requested_s=run_s,
            slots=row.whole("num_gpus", least=0),
            owner=row.text("cluster"),
        )


def original_jobs(path: Path) -> Iterator[TraceJob]:
    """Read the published form. A job ran as long as all its attempts together."""
    for number, item in enumerate(json_items(path), 1):
        try:
            yield _original(cast("dict[str, Any]", item))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise TraceError(
                f"item {number} is no job of Philly",
                file=str(path),
                because=f"{type(error).__name__}: {error}",
                hint="a job has jobid, submitted_time and attempts",
            ) from error


def _original(item: dict[str, Any]) -> TraceJob:
    run_s, slots = 0.0, 0
    for attempt in item["attempts"]:
        gpus = sum(len(part["gpus"]) for part in attempt.get("detail") or ())
        slots = max(slots, gpus)
        start, end = attempt.get("start_time"), attempt.get("end_time")
        if start and end and "None" not in (start, end):
            run_s += max(0.0, seconds_of(end) - seconds_of(start))
    return TraceJob(
        id=str(item["jobid"]),
        submitted_s=seconds_of(item["submitted_time"]),
        run_s=run_s,
        requested_s=run_s,
        slots=slots,
        owner=str(item.get("vc", "")),
    )
