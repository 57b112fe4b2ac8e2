"""Reproduce published results: which replays are needed, and what they give.

Records that differ only in the metric share their replays. A replay is cut into
parts, one for each seed or window, which can run in any process and in any order.
"""

from __future__ import annotations

from functools import lru_cache
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from shoal.errors import PolicyError, UsageError
from shoal.lab.replay.cluster_fill import fill, policy_named, typical_pods
from shoal.lab.replay.figures import METRICS, mean, metric_named
from shoal.lab.replay.preemption_rules import rule_named
from shoal.lab.replay.protocols import (
    muri,
    rlscheduler,
    rlscheduler_jobs,
    waiting,
)
from shoal.lab.replay.published_results import Protocol, PublishedResult, found
from shoal.lab.traces import openb, training
from shoal.lab.traces.formats import format_of, read_jobs
from shoal.lab.traces.swf import SwfFile
from shoal.lab.traces.transforms import fitting, window

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from shoal.lab.replay.figures import ReplayOutcome
    from shoal.lab.traces.values import Cluster, Pod, TraceHost, TraceJob

FILL_METRIC: Final = "gpu_allocation_pct"


class Part(msgspec.Struct, frozen=True):
    """One replay: a trace, a policy, its options, and one seed or window."""

    protocol: Protocol
    trace: str
    policy: str
    others: str = ""  # the file of hosts, or of the cluster
    demand: float = 0.0
    seed: int = 0
    candidates: int | None = None
    backfill: bool = False
    start: int = 0
    length: int | None = None
    first: int | None = None
    slots: int | None = None


class Reproduction(msgspec.Struct, frozen=True):
    """A record and what we got."""

    record: PublishedResult
    ours: float

    @property
    def difference(self) -> float:
        """By how much ours is above what was published."""
        return self.ours - self.record.value

    @property
    def within(self) -> bool:
        """Whether ours is within the tolerance; exactly at its edge counts."""
        slack = self.record.tolerance + 1e-9 * abs(self.record.value)
        return isfinite(self.ours) and abs(self.difference) <= slack


def parts_of(record: PublishedResult, folder: Path) -> list[Part]:
    """Return the replays that a record needs.

    Raises `UsageError` if a file is missing, or a policy or a metric is not known.
    """
    try:
        return _parts_of(record, folder)
    except PolicyError as error:
        raise UsageError(
            f"a record on {record.trace}: {error.what}",
            because=error.because,
            hint=error.hint,
        ) from error


def _parts_of(record: PublishedResult, folder: Path) -> list[Part]:
    trace = str(found(folder, record.trace))
    policy = record.policy
    _check_metric(record)
    match record.protocol:
        case "fill":
            if not record.nodes:
                raise UsageError(f"a record on {record.trace} names no file of nodes")
            nodes = str(found(folder, record.nodes))
            policy_named(policy, (), record.candidates)
            part = Part("fill", trace, policy, nodes, record.demand)
            part = msgspec.structs.replace(part, candidates=record.candidates)
            return [
                msgspec.structs.replace(part, seed=seed) for seed in record.all_seeds
            ]
        case "batch":
            waiting((), 1, policy)
            return [
                Part(
                    "batch",
                    trace,
                    policy,
                    backfill=record.backfill,
                    start=start,
                    length=record.length,
                    first=record.first,
                    slots=record.slots,
                )
                for start in record.starts or (0,)
            ]
        case "preemptive":
            if not record.cluster:
                raise UsageError(f"a record on {record.trace} names no cluster")
            cluster = str(found(folder, record.cluster))
            rule_named(policy)
            return [
                Part(
                    "preemptive",
                    trace,
                    policy,
                    cluster,
                    start=start,
                    length=record.length,
                    first=record.first,
                )
                for start in record.starts or (0,)
            ]


def _check_metric(record: PublishedResult) -> None:
    filling = record.protocol == "fill"
    known = [FILL_METRIC] if filling else list(METRICS)
    if record.metric == FILL_METRIC if filling else metric_named(record.metric):
        return
    raise UsageError(
        f"no metric '{record.metric}' of {record.trace}",
        because=f"there are {', '.join(known)}",
    )


def figures_of(part: Part, wanted: Iterable[tuple[str, int]]) -> list[float]:
    """Do a replay; return the metrics wanted, each with its demand in per cent."""
    if part.protocol == "fill":
        hosts, pods = _hosts(part.others), _pods(part.trace)
        policy = policy_named(part.policy, typical_pods(pods), part.candidates)
        filled = fill(hosts, pods, policy, part.demand, part.seed)
        return [filled.allocation_pct(demand_pct) for _, demand_pct in wanted]
    outcome = _outcome(part)
    figures: list[float] = []
    for name, _ in wanted:
        metric = metric_named(name)
        assert metric is not None, name
        figures.append(metric(outcome))
    return figures


def _outcome(part: Part) -> ReplayOutcome:
    if part.protocol == "batch":
        jobs, told, nodes = _batch_jobs(part.trace)
        slots = part.slots or told or max(job.slots for job in jobs)
        chosen = fitting(_cut(jobs, part), slots)
        return rlscheduler(
            chosen,
            slots,
            part.policy,
            backfill=part.backfill,
            nodes=nodes if slots == told else None,
        )
    cluster = _cluster(part.others)
    chosen = fitting(_cut(_training_jobs(part.trace), part), cluster.gpus)
    return muri(chosen, cluster, part.policy)


def results_of(
    records: Sequence[PublishedResult],
    parts: Sequence[Sequence[Part]],
    figures: dict[tuple[Part, str, int], float],
) -> list[Reproduction]:
    """Put together what the replays gave for each record: means over its parts."""
    return [
        Reproduction(
            record,
            mean([figures[part, record.metric, record.demand_pct] for part in needed]),
        )
        for record, needed in zip(records, parts, strict=True)
    ]


def wanted_of(
    records: Sequence[PublishedResult], parts: Sequence[Sequence[Part]]
) -> dict[Part, list[tuple[str, int]]]:
    """Return each replay that is needed, once, and the metrics that it must give."""
    wanted: dict[Part, dict[tuple[str, int], None]] = {}
    for record, needed in zip(records, parts, strict=True):
        for part in needed:
            wanted.setdefault(part, {})[record.metric, record.demand_pct] = None
    return {part: list(metrics) for part, metrics in wanted.items()}


def _cut(jobs: Sequence[TraceJob], part: Part) -> Sequence[TraceJob]:
    jobs = jobs if part.first is None else jobs[: part.first]
    length = len(jobs) if part.length is None else part.length
    return window(jobs, part.start, length)


@lru_cache(maxsize=8)
def _hosts(path: str) -> tuple[TraceHost, ...]:
    return tuple(openb.hosts(Path(path)))


@lru_cache(maxsize=8)
def _pods(path: str) -> tuple[Pod, ...]:
    return tuple(openb.pods(Path(path)))


@lru_cache(maxsize=8)
def _cluster(path: str) -> Cluster:
    return training.cluster(Path(path))


@lru_cache(maxsize=8)
def _training_jobs(path: str) -> tuple[TraceJob, ...]:
    return tuple(training.training_jobs(Path(path)))


@lru_cache(maxsize=8)
def _batch_jobs(path: str) -> tuple[tuple[TraceJob, ...], int, int]:
    """Read batch jobs as RLScheduler does, with how many slots on how many nodes.

    Other formats come in order of submission, and tell nothing of nodes.
    """
    if format_of(Path(path)) != "swf":
        trace = read_jobs(Path(path))
        return trace.jobs, trace.slots, 0
    file = SwfFile(Path(path))
    jobs = rlscheduler_jobs(file.jobs())
    return tuple(jobs), file.slots(), file.nodes()
