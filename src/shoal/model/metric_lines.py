"""Reports of metrics as lines of JSON: `[1731870000.25, 7, {"loss": 0.3}]`.

A line is the time of the report in seconds since 1970, by the clock of the worker, the
step or null, and the metrics. NaN and infinities are written as Python writes them. A
worker sends lines as the output stream `metrics`, whole ones only; the scheduler keeps
them in a file and believes none of them: what cannot be read is passed over.
"""

from __future__ import annotations

import itertools
import json
import math
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from shoal.model.text.bounds import NAME_LENGTH_MAX
from shoal.model.text.texts import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

STEP: Final = "step"
IN_A_LINE_MAX: Final = 32
"""Metrics in one line, so that any line fits into one message."""

LINE_BYTES_MAX: Final = IN_A_LINE_MAX * (6 * NAME_LENGTH_MAX + 32) + 64


class MetricReport(NamedTuple):
    """What a task told at one time; `step` is NaN if it counts none."""

    at_s: float
    step: float
    metrics: dict[str, float]


def encode(at_s: float, metrics: Mapping[str, float]) -> list[bytes]:
    """Return a report as lines: one, unless it has very many metrics."""
    step = metrics.get(STEP)
    named = iter([(name, value) for name, value in metrics.items() if name != STEP])
    lines: list[bytes] = []
    while part := dict(itertools.islice(named, IN_A_LINE_MAX)):
        line = [round(at_s, 3), step, part]
        lines.append(json.dumps(line, separators=(",", ":")).encode() + b"\n")
    return lines


def goes_on(
    report: MetricReport, at_s: float, step: float, before: Mapping[str, float]
) -> bool:
    """Whether a full line at this time and step is of the same report as the next."""
    is_same_step = report.step == step or (math.isnan(report.step) and math.isnan(step))
    return (
        report.at_s == at_s
        and is_same_step
        and before.keys().isdisjoint(report.metrics)
    )


def packed(lines: Iterable[bytes], bytes_max: int) -> Iterator[bytes]:
    """Join lines to pieces of at most `bytes_max` bytes."""
    assert bytes_max >= LINE_BYTES_MAX
    piece = bytearray()
    for line in lines:
        if len(piece) + len(line) > bytes_max:
            yield bytes(piece)
            piece.clear()
        piece += line
    if piece:
        yield bytes(piece)


def decode(data: bytes) -> Iterator[MetricReport]:
    """Yield the reports in whole lines; skip other lines."""
    for line in data.split(b"\n"):
        if line and (report := _report(line.lstrip(b"\0"))) is not None:
            yield report


def _report(line: bytes) -> MetricReport | None:
    try:
        found: object = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, list) or len(parts := cast("list[object]", found)) != 3:
        return None
    at_s, step, metrics = parts
    if not _is_number(at_s) or not isinstance(metrics, dict):
        return None
    named = itertools.islice(cast("dict[str, object]", metrics).items(), IN_A_LINE_MAX)
    return MetricReport(
        _float(at_s),
        _float(step) if _is_number(step) else math.nan,
        {
            one_line(name[:NAME_LENGTH_MAX]): _float(value)
            for name, value in named
            if _is_number(value)
        },
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _float(value: object) -> float:
    try:
        return float(cast("float", value))
    except OverflowError:
        return math.inf
