"""Metrics of a replay: waits, completion times, slowdowns, utilisation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from shoal.policy.queueing.queue_orders import SHORT_S

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from shoal.policy.table.rows import Floats


class ReplayOutcome(msgspec.Struct, frozen=True):
    """When each job was submitted, started first, and ended, and what it occupied."""

    submitted_s: Floats
    started_s: Floats
    ended_s: Floats
    run_s: Floats
    slots: Floats
    capacity: int
    preemptions: int = 0
    events: int = 0

    @property
    def waits_s(self) -> Floats:
        """How long each job waited for its first start."""
        return self.started_s - self.submitted_s

    @property
    def jcts_s(self) -> Floats:
        """Completion times: from submit to end."""
        return self.ended_s - self.submitted_s

    @property
    def slowdowns(self) -> Floats:
        """Completion times by run times, at least 1; short jobs count as 10 s long."""
        slowed: Floats = np.maximum(1.0, self.jcts_s / np.maximum(self.run_s, SHORT_S))
        return slowed

    @property
    def makespan_s(self) -> float:
        """When the last job ended, counted from time 0 of the trace."""
        return float(self.ended_s.max())

    @property
    def utilisation(self) -> float:
        """The part of the cluster that was used, from the first submit to the end."""
        span_s = float(self.ended_s.max() - self.submitted_s.min())
        used = float((self.run_s * self.slots).sum())
        return used / (span_s * self.capacity) if span_s > 0 else 0.0


def percentile(values: Floats, share: float) -> float:
    """Return the value below which this share lies: the one at int(share n)."""
    ranked = np.sort(values)
    return float(ranked[min(len(ranked) - 1, int(share * len(ranked)))])


METRICS: Final[Mapping[str, Callable[[ReplayOutcome], float]]] = {
    "mean_bounded_slowdown": lambda o: float(o.slowdowns.mean()),
    "p50_bounded_slowdown": lambda o: percentile(o.slowdowns, 0.5),
    "p95_bounded_slowdown": lambda o: percentile(o.slowdowns, 0.95),
    "p99_bounded_slowdown": lambda o: percentile(o.slowdowns, 0.99),
    "max_bounded_slowdown": lambda o: float(o.slowdowns.max()),
    "average_jct_s": lambda o: float(o.jcts_s.mean()),
    "median_jct_s": lambda o: percentile(o.jcts_s, 0.5),
    "p95_jct_s": lambda o: percentile(o.jcts_s, 0.95),
    "p99_jct_s": lambda o: percentile(o.jcts_s, 0.99),
    "max_jct_s": lambda o: float(o.jcts_s.max()),
    "average_wait_s": lambda o: float(o.waits_s.mean()),
    "median_wait_s": lambda o: percentile(o.waits_s, 0.5),
    "p95_wait_s": lambda o: percentile(o.waits_s, 0.95),
    "p99_wait_s": lambda o: percentile(o.waits_s, 0.99),
    "max_wait_s": lambda o: float(o.waits_s.max()),
    "makespan_s": lambda o: o.makespan_s,
    "utilisation_pct": lambda o: 100 * o.utilisation,
    "preemptions": lambda o: float(o.preemptions),
}

SYNONYMS: Final[Mapping[str, str]] = {
    "mean_jct_s": "average_jct_s",
    "mean_wait_s": "average_wait_s",
    "mean_waiting_time_s": "average_wait_s",
    "average_waiting_time_s": "average_wait_s",
    "p50_jct_s": "median_jct_s",
    "p50_wait_s": "median_wait_s",
    "average_bounded_slowdown": "mean_bounded_slowdown",
    "utilization_pct": "utilisation_pct",
}


def metric_named(name: str) -> Callable[[ReplayOutcome], float] | None:
    """Return the metric of this name, if it is known."""
    return METRICS.get(SYNONYMS.get(name, name))


def mean(values: Sequence[float]) -> float:
    """Return the mean of some figures."""
    return sum(values) / len(values)
