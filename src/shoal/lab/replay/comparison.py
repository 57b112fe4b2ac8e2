"""Replay one workload under several policies, side by side."""

from __future__ import annotations

from functools import partial
from random import Random
from time import process_time
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from shoal.errors import UsageError
from shoal.lab.replay.cluster_fill import fill, policy_named, typical_pods
from shoal.lab.replay.clusters import CountedSlots, HostSlots, WorkerPool
from shoal.lab.replay.figures import METRICS, ReplayOutcome
from shoal.lab.replay.preemption_rules import rule_named
from shoal.lab.replay.preemptive import Preemptive, PreemptiveOptions
from shoal.lab.replay.protocols import muri, rlscheduler, start_overhead_s, waiting
from shoal.lab.replay.queues import Live
from shoal.lab.replay.run_to_completion import Backfill, EveryFit, InOrder
from shoal.lab.traces.transforms import fitting
from shoal.policy.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from shoal.lab.traces.values import Cluster, Pod, TraceHost, TraceJob
    from shoal.policy.interface import Policy

Protocol: TypeAlias = Literal["none", "rlscheduler", "muri"]

SHOWN: Final = (
    "average_wait_s",
    "median_wait_s",
    "p95_wait_s",
    "average_jct_s",
    "p99_jct_s",
    "mean_bounded_slowdown",
    "makespan_s",
    "utilisation_pct",
    "preemptions",
)


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster, and how jobs are served there."""

    slots: int = 0
    cluster: Cluster | None = None
    protocol: Protocol = "none"
    backfill: Backfill = "none"
    preemptive: bool = False
    warm_up: int = 0  # jobs at the beginning that do not count
    drop: bool = False  # leave out what can never fit, instead of refusing it


class PolicyLine(msgspec.Struct, frozen=True, kw_only=True):
    """One policy's figures."""

    policy: str
    figures: dict[str, float]
    jobs: int
    dropped: int = 0
    events: int = 0
    cpu_s: float = 0.0


def compare(
    jobs: Sequence[TraceJob], policies: Sequence[str], setup: Setup
) -> Iterator[PolicyLine]:
    """Replay jobs under each policy; jobs come in the order of their submits."""
    slots = setup.cluster.gpus if setup.cluster else setup.slots
    kept = fitting(jobs, slots)
    dropped = len(jobs) - len(kept)
    if dropped and not setup.drop:
        widest = max(job.slots for job in jobs)
        raise UsageError(
            f"{dropped} of {len(jobs)} jobs can never run",
            because=f"one wants {widest} slots, and there are {slots}",
            hint="give a larger cluster, or leave them out by --drop",
        )
    if len(kept) <= setup.warm_up:
        raise UsageError(f"of {len(kept)} jobs, none is left after the warm-up")
    replays = [replay_by(policy, setup) for policy in policies]
    for policy, replay in zip(policies, replays, strict=True):
        began_s = process_time()
        outcome = _warm(replay(kept), setup.warm_up)
        yield PolicyLine(
            policy=policy,
            figures={name: METRICS[name](outcome) for name in SHOWN},
            jobs=len(outcome.submitted_s),
            dropped=dropped,
            events=outcome.events,
            cpu_s=process_time() - began_s,
        )


def replay_by(
    policy: str, setup: Setup
) -> Callable[[Sequence[TraceJob]], ReplayOutcome]:
    """Return a function that replays jobs under a policy, or raise `PolicyError`."""
    cluster = setup.cluster
    slots = cluster.gpus if cluster else setup.slots
    if setup.protocol == "muri":
        if cluster is None:
            raise UsageError(
                "the protocol muri needs a cluster", hint="give its file by --cluster"
            )
        rule_named(policy)
        return partial(muri, cluster=cluster, policy=policy)
    if setup.preemptive:
        rule = rule_named(policy)
        return lambda jobs: Preemptive(
            jobs,
            partial(_idle, setup),
            rule,
            work_s=[job.run_s for job in jobs],
            overhead_s=[start_overhead_s(job) for job in jobs],
            options=PreemptiveOptions(),
        ).run()
    waiting((), 1, policy)
    if setup.protocol == "rlscheduler":
        backfill = setup.backfill != "none"
        return partial(
            rlscheduler,
            slots=slots,
            policy=policy,
            backfill=backfill,
            nodes=cluster.hosts if cluster else None,
        )
    if cluster is None:
        return lambda jobs: InOrder(
            jobs, CountedSlots(slots), waiting(jobs, slots, policy), setup.backfill
        ).run()
    return lambda jobs: InOrder(
        jobs, _hosts(cluster), waiting(jobs, slots, policy), setup.backfill
    ).run()


def _idle(setup: Setup) -> CountedSlots | HostSlots:
    cluster = setup.cluster
    if cluster is None:
        return CountedSlots(setup.slots)
    return _hosts(cluster)


def _hosts(cluster: Cluster) -> HostSlots:
    return HostSlots(cluster.switches, cluster.hosts_per_switch, cluster.gpus_per_host)


def _warm(outcome: ReplayOutcome, warm_up: int) -> ReplayOutcome:
    """Leave out the first jobs: they found an empty cluster."""
    if warm_up == 0:
        return outcome
    return msgspec.structs.replace(
        outcome,
        submitted_s=outcome.submitted_s[warm_up:],
        started_s=outcome.started_s[warm_up:],
        ended_s=outcome.ended_s[warm_up:],
        run_s=outcome.run_s[warm_up:],
        slots=outcome.slots[warm_up:],
    )


def compare_placing(
    jobs: Sequence[TraceJob], policies: Sequence[str], cluster: Cluster, seed: int
) -> Iterator[PolicyLine]:
    """Replay jobs on hosts as a live scheduler knows them, by placement policies."""
    registry = Registry()
    made = [registry.make(policy) for policy in policies]
    kept = fitting(jobs, cluster.gpus)
    for name, policy in zip(policies, made, strict=True):
        began_s = process_time()
        outcome = on_workers(kept, cluster, policy, Random(seed))
        yield PolicyLine(
            policy=name,
            figures={metric: METRICS[metric](outcome) for metric in SHOWN},
            jobs=len(kept),
            dropped=len(jobs) - len(kept),
            events=outcome.events,
            cpu_s=process_time() - began_s,
        )


def on_workers(
    jobs: Sequence[TraceJob], cluster: Cluster, policy: Policy, rng: Random
) -> ReplayOutcome:
    """Replay jobs as a live scheduler would serve them: its queue, table and policy."""
    pool = WorkerPool(cluster.hosts, cluster.gpus_per_host, policy, rng)
    queue = Live(jobs, cluster.gpus, pool.kind)
    return EveryFit(jobs, pool, queue).run()


def compare_filling(
    hosts: Sequence[TraceHost],
    pods: Sequence[Pod],
    policies: Sequence[str],
    *,
    demand_pct: int,
    candidates: int | None,
    seeds: Sequence[int],
) -> Iterator[PolicyLine]:
    """Fill a cluster with pods by placement policies; means over the seeds."""
    typical = typical_pods(pods)
    for policy in policies:
        policy_named(policy, typical, candidates)
    for policy in policies:
        began_s = process_time()
        fills = [
            fill(
                hosts,
                pods,
                policy_named(policy, typical, candidates),
                demand_pct / 100,
                seed,
            )
            for seed in seeds
        ]
        allocated = [each.allocation_pct(demand_pct) for each in fills]
        placed = [each.placed / len(each.arrived_milli) for each in fills]
        yield PolicyLine(
            policy=policy,
            figures={
                "gpu_allocation_pct": sum(allocated) / len(allocated),
                "placed_pct": 100 * sum(placed) / len(placed),
            },
            jobs=len(pods),
            events=sum(len(each.arrived_milli) for each in fills),
            cpu_s=process_time() - began_s,
        )
