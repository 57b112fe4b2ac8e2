"""The results of a run as figures and series; equal for equal seeds."""

from __future__ import annotations

import math
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Final

import msgspec

from shoal.lab.datacentre.services import Replica, ServiceResult, serve
from shoal.model.ids import JobId

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.lab.datacentre.data_centre import DataCentre
    from shoal.lab.datacentre.recorder import JobLife, SeriesPoint

SHORT_S: Final = 10.0
"""A job shorter than this counts as this long when its slowdown is told."""

BUCKETS: Final = 400
"""Steps in time of a series."""

CURVE: Final = 60
"""Steps in time of how news spreads."""


class LinkUse(msgspec.Struct, frozen=True):
    """What a link carried, in the busier direction."""

    name: str
    mean: float  # share of its bandwidth
    carried_bytes: float


class GossipResult(msgspec.Struct, frozen=True, kw_only=True):
    """How news of free room spread."""

    messages: int
    bytes: int
    messages_per_host_s: float
    bytes_per_host_s: float
    converged_p50_s: float | None  # until 99 % of hosts had heard
    converged_p95_s: float | None
    rounds_p50: float | None  # the same in rounds of gossip
    log2_hosts: float
    probes: int
    missed: int  # news that never got to 99 %
    stale_share: float
    stale_age_s: float  # of views that were wrong: for how long, on average
    curve_s: tuple[float, ...]
    curve_share: tuple[float, ...]  # of hosts that had heard by then


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """Series over time, in equal steps."""

    step_s: float
    waiting: tuple[float, ...]  # tasks, at most, in each step
    used: tuple[float, ...]  # share of devices, on average


class Unended(msgspec.Struct, frozen=True):
    """A job that did not end, and why not."""

    job: JobId
    why: str


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """All figures of one run."""

    policy: str
    overlay: str
    jobs: int
    ended: int
    failed: int
    unended: tuple[Unended, ...]
    virtual_s: float
    makespan_s: float
    wait_p50_s: float
    wait_p95_s: float
    jct_mean_s: float
    jct_p99_s: float
    slowdown_mean: float
    utilisation: float
    moved_bytes: float
    cross_leaf_share: float
    links: tuple[LinkUse, ...]
    preemptions: int
    starts: int  # of tasks, again after a crash or a preemption
    refusals: int
    messages: int
    message_bytes: int
    by_message: dict[str, int]
    gossip: GossipResult
    series: Series
    hosts_used: tuple[float, ...]  # share of the devices of each host
    services: tuple[ServiceResult, ...] = ()
    events: int
    history: str

    @property
    def hottest(self) -> LinkUse | None:
        """The link that was busiest on average."""
        return max(self.links, key=lambda link: (link.mean, link.name), default=None)


def summarise(centre: DataCentre, events: int, history: str) -> RunResult:
    """Return the figures of a run that has ended."""
    recorder, traffic, meter = centre.recorder, centre.traffic, centre.meter
    lives = recorder.lives
    over = {job: life for job, life in lives.items() if life.ended >= 0}
    runs_s = {drawn_job.job: drawn_job.run_s for drawn_job in centre.drawn.jobs}
    waits = [
        life.started - life.submitted for life in lives.values() if life.started >= 0
    ]
    # A job that has not ended counts with the time that it has taken so far: leaving
    # it out would flatter whoever let it wait.
    now = centre.world.now
    times = [
        (life.ended if life.ended >= 0 else now) - life.submitted
        for life in lives.values()
        if life.submitted <= now
    ]
    makespan_s = max((life.ended for life in over.values()), default=centre.world.now)
    hosts = centre.settings.hosts
    return RunResult(
        policy=centre.policy,
        overlay=centre.overlay,
        jobs=len(lives),
        ended=len(over),
        failed=sum(life.failed for life in over.values()),
        unended=tuple(
            Unended(drawn_job.job, centre.why_unended(drawn_job))
            for drawn_job in centre.unended()
        ),
        virtual_s=centre.world.now,
        makespan_s=makespan_s,
        wait_p50_s=quantile(waits, 0.5),
        wait_p95_s=quantile(waits, 0.95),
        jct_mean_s=_mean(times),
        jct_p99_s=quantile(times, 0.99),
        slowdown_mean=_mean(_slowdowns(over, runs_s)),
        utilisation=recorder.busy_s / (hosts.widths * makespan_s),
        moved_bytes=traffic.moved_bytes,
        cross_leaf_share=traffic.crossed_bytes / max(1.0, traffic.moved_bytes),
        links=_links(centre, makespan_s),
        preemptions=recorder.preemptions,
        starts=recorder.starts,
        refusals=recorder.refusals,
        messages=meter.counts.total(),
        message_bytes=meter.bytes.total(),
        by_message=dict(sorted(meter.counts.items())),
        gossip=_gossip(centre),
        series=_series(recorder.points, makespan_s, hosts.widths),
        hosts_used=_hosts_used(centre, makespan_s),
        services=_services(centre),
        events=events,
        history=history,
    )


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value at this quantile; 0 if there are none."""
    ordered = sorted(values)
    if not ordered:
        return 0.0
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0


def _slowdowns(over: dict[JobId, JobLife], runs_s: dict[JobId, float]) -> list[float]:
    """Return each job's slowdown: its time by its own work, at least 1."""
    return [
        max(1.0, (life.ended - life.submitted) / max(runs_s[job], SHORT_S))
        for job, life in over.items()
    ]


def _links(centre: DataCentre, span_s: float) -> tuple[LinkUse, ...]:
    carried = centre.traffic.carried
    capacities = centre.traffic.sharing.capacities
    uses: list[LinkUse] = []
    for number, link in enumerate(centre.fabric.links):
        most = max(float(carried[2 * number]), float(carried[2 * number + 1]))
        mean = most / (float(capacities[2 * number]) * span_s)
        uses.append(LinkUse(link.name, mean, most))
    return tuple(uses)


def _hosts_used(centre: DataCentre, span_s: float) -> tuple[float, ...]:
    used = [0.0] * len(centre.names)
    for bar in centre.recorder.bars:
        used[bar.host] += bar.width * (bar.ended - bar.began)
    hosts = centre.settings.hosts
    return tuple(
        amount / (max(1e-9, hosts.width(place)) * span_s)
        for place, amount in enumerate(used)
    )


def _services(centre: DataCentre) -> tuple[ServiceResult, ...]:
    """Serve the requests of all services with the replicas that there were."""
    hosts, results = centre.settings.hosts, list[ServiceResult]()
    for job, kind in centre.drawn.services.items():
        replicas = [
            Replica(bar.began, bar.ended, hosts[bar.host].speed)
            for bar in centre.recorder.replicas
            if bar.job == job
        ]
        since = centre.recorder.lives[job].submitted
        rng = Random(f"{centre.settings.seed}/{job}")
        results.append(serve(kind, replicas, since, rng))
    return tuple(results)


def _gossip(centre: DataCentre) -> GossipResult:
    probes, hosts = centre.probes, len(centre.names)
    messages = centre.meter.counts["LoadDigests"]
    size = centre.meter.bytes["LoadDigests"]
    spent = hosts * centre.world.now
    times = probes.converged_s
    half = quantile(times, 0.5) if times else None
    bound_s = math.log2(hosts) * centre.settings.interval_s
    step_s, curve = _curve(probes.delays, max(bound_s * 1.25, 2 * (half or 0.0)))
    return GossipResult(
        messages=messages,
        bytes=size,
        messages_per_host_s=messages / spent,
        bytes_per_host_s=size / spent,
        converged_p50_s=half,
        converged_p95_s=quantile(times, 0.95) if times else None,
        rounds_p50=None if half is None else half / centre.settings.interval_s,
        log2_hosts=math.log2(hosts),
        probes=len(probes.delays),
        missed=probes.missed,
        stale_share=probes.wrong / max(1, probes.views),
        stale_age_s=probes.wrong_age_s / max(1, probes.wrong),
        curve_s=tuple(step_s * n for n in range(len(curve))),
        curve_share=tuple(curve),
    )


def _curve(delays: list[list[float]], span_s: float) -> tuple[float, list[float]]:
    """Return the share of hosts that had heard by each time step, over all probes."""
    heard = sorted(d for probe in delays for d in probe)
    known = [d for d in heard if math.isfinite(d)]
    step_s = max(span_s, 1e-3) / (CURVE - 1)
    if not known:
        return step_s, [0.0]
    shares: list[float] = []
    place = 0
    for step in range(CURVE):
        while place < len(known) and known[place] <= step * step_s:
            place += 1
        shares.append(place / len(heard))
    return step_s, shares


def _series(points: Sequence[SeriesPoint], span_s: float, width: float) -> Series:
    step_s = span_s / BUCKETS
    waiting, used = [0.0] * BUCKETS, [0.0] * BUCKETS
    for point, after in pairwise(points):
        first = int(point.at / step_s)
        for bucket in range(first, min(BUCKETS, int(after.at / step_s) + 1)):
            began, ended = bucket * step_s, (bucket + 1) * step_s
            overlap = min(ended, after.at) - max(began, point.at)
            used[bucket] += max(0.0, overlap) * point.busy / (step_s * width)
            waiting[bucket] = max(waiting[bucket], float(point.waiting))
    return Series(step_s=step_s, waiting=tuple(waiting), used=tuple(used))
