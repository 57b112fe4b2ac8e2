"""The figures of a sweep: each policy against the best other, point by point.

Points that differ only in their seed are one scenario, and their figures are averaged:
one seed says as much about luck as about a policy.
"""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from shoal.lab.datacentre.sweep import CellResult

SEED: Final = "seed"
TIE: Final = 1.005
"""A policy wins where no other is better by more than this factor."""

PAIRS_MIN: Final = 8
NORMAL_95: Final = 1.96

METRICS: Final = {
    "jct_mean_s": "mean completion",
    "jct_p99_s": "p99 of completion",
}
"""What policies are compared by, and what it is called."""


class ScenarioLine(msgspec.Struct, frozen=True):
    """One scenario: the mean over its seeds, by column and metric."""

    labels: tuple[str, ...]  # what tells it from others
    seeds: int
    values: dict[str, dict[str, float]]  # metric, then column

    def ratio(self, metric: str, column: str) -> float:
        """Return how much worse a column is than the best other, as a factor."""
        values = self.values[metric]
        others = [value for name, value in values.items() if name != column]
        best = min(others, default=values[column])
        return values[column] / best if best > 0 else 1.0


class ColumnSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One policy over all scenarios."""

    column: str
    wins: dict[str, int]
    typical: dict[str, float]  # geometric mean of the ratios to the best other
    worst: dict[str, float]
    unended: int  # jobs
    why_unended: str  # of one of them
    refusals_per_start: float
    messages_per_job: float


class SweepFigures(msgspec.Struct, frozen=True):
    """All scenarios of a sweep side by side."""

    axes: tuple[str, ...]
    columns: tuple[str, ...]
    lines: tuple[ScenarioLine, ...]
    summaries: tuple[ColumnSummary, ...]


def figures_of(results: Sequence[CellResult]) -> SweepFigures:
    """Return the figures of a sweep, from the results of its cells in any order."""
    columns = tuple(dict.fromkeys(column_of(result, results) for result in results))
    axes = _axes(results)
    groups: dict[tuple[str, ...], list[CellResult]] = {}
    for result in results:
        groups.setdefault(_labels(result, axes), []).append(result)
    lines = tuple(
        _line(labels, group, results) for labels, group in sorted(groups.items())
    )
    # A column that some scenario lacks cannot be compared.
    whole = tuple(
        name
        for name in columns
        if all(name in line.values["jct_mean_s"] for line in lines)
    )
    summaries = [_summary(name, lines, results) for name in whole]
    summaries.sort(key=lambda one: (one.typical["jct_mean_s"], one.column))
    return SweepFigures(
        axes, tuple(one.column for one in summaries), lines, tuple(summaries)
    )


class PairedRatio(msgspec.Struct, frozen=True):
    """How much worse one policy is than another, where both had the same luck."""

    column: str
    other: str
    pairs: int  # the same scenario and seed under both
    ratio: float  # geometric mean of the ratios
    low: float  # the 95 % interval of it
    high: float
    spread: float  # of the logarithm of one ratio, as a standard deviation


def paired_ratios(
    results: Sequence[CellResult], column: str, metric: str
) -> list[PairedRatio]:
    """Compare a column with every other, pair by pair; the closest other is first.

    A figure of one seed is luck for the most part where hosts crash: which job is hit
    decides. So only the interval tells whether one policy is better.
    """
    by_point: dict[tuple[str, ...], dict[str, float]] = {}
    for one in results:
        point = (one.scenario, *(f"{k}={v}" for k, v in sorted(one.point.items())))
        values = by_point.setdefault(point, {})
        values[column_of(one, results)] = max(getattr(one, metric), 1e-9)
    others = sorted({name for values in by_point.values() for name in values})
    found: list[PairedRatio] = []
    for other in others:
        logs = [
            math.log(values[column] / values[other])
            for values in by_point.values()
            if other != column and column in values and other in values
        ]
        if len(logs) < PAIRS_MIN:
            continue
        mean, spread = _mean(logs), statistics.stdev(logs)
        error = NORMAL_95 * spread / math.sqrt(len(logs))
        interval = (math.exp(mean - error), math.exp(mean + error))
        ratio = math.exp(mean)
        found.append(PairedRatio(column, other, len(logs), ratio, *interval, spread))
    return sorted(found, key=lambda one: (-one.ratio, one.other))


def column_of(result: CellResult, results: Iterable[CellResult]) -> str:
    """Return what tells a result from others at its point: policy, overlay or both."""
    if len(dict.fromkeys(one.overlay for one in results)) == 1:
        return result.policy
    if len(dict.fromkeys(one.policy for one in results)) == 1:
        return result.overlay
    return f"{result.policy}, {result.overlay}"


def _axes(results: Iterable[CellResult]) -> tuple[str, ...]:
    """Return what tells scenarios apart: their names, if they differ, and axes."""
    names = dict.fromkeys(result.scenario for result in results)
    axes = dict.fromkeys(axis for result in results for axis in result.point)
    axes.pop(SEED, None)
    first = ["scenario"] if len(names) > 1 or not axes else []
    return (*first, *axes)


def _labels(result: CellResult, axes: tuple[str, ...]) -> tuple[str, ...]:
    known = {"scenario": result.scenario, **result.point}
    return tuple(known.get(axis, "-") for axis in axes)


def _line(
    labels: tuple[str, ...], group: list[CellResult], results: Sequence[CellResult]
) -> ScenarioLine:
    by_column: dict[str, list[CellResult]] = {}
    for result in group:
        by_column.setdefault(column_of(result, results), []).append(result)
    values = {
        metric: {
            column: _mean([getattr(one, metric) for one in some])
            for column, some in by_column.items()
        }
        for metric in METRICS
    }
    seeds = max(len(some) for some in by_column.values())
    return ScenarioLine(labels, seeds, values)


def _summary(
    column: str, lines: Sequence[ScenarioLine], results: Sequence[CellResult]
) -> ColumnSummary:
    ratios = {m: [line.ratio(m, column) for line in lines] for m in METRICS}
    own = [result for result in results if column_of(result, results) == column]
    starts = sum(result.starts for result in own)
    jobs = sum(result.jobs for result in own)
    return ColumnSummary(
        column=column,
        wins={m: sum(ratio <= TIE for ratio in ratios[m]) for m in METRICS},
        typical={
            m: math.exp(_mean([math.log(max(r, 1e-9)) for r in ratios[m]]))
            for m in METRICS
        },
        worst={m: max(ratios[m]) for m in METRICS},
        unended=jobs - sum(result.ended for result in own),
        why_unended=next(filter(None, (one.why_unended for one in own)), ""),
        refusals_per_start=sum(result.refusals for result in own) / max(1, starts),
        messages_per_job=sum(result.messages for result in own) / max(1, jobs),
    )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
