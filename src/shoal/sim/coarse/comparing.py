"""One workload under several policies, side by side."""

from __future__ import annotations

from functools import partial
from random import Random
from time import process_time
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from shoal.errors import UsageError
from shoal.policy.registry import Registry
from shoal.sim.coarse.batch import Backfill, BatchOptions, BatchReplay
from shoal.sim.coarse.figures import METRICS, Outcome
from shoal.sim.coarse.filling import fill, policy_named, typical_pods
from shoal.sim.coarse.pool import PoolReplay
from shoal.sim.coarse.preemptive import PreemptiveOptions, PreemptiveReplay
from shoal.sim.coarse.protocols import (
    chooser_named,
    muri,
    rlscheduler,
    start_overhead_s,
    waiting,
)
from shoal.sim.coarse.rooms import Counted, Hosts, Rooms
from shoal.sim.traces.shaping import fitting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from shoal.sim.traces.values import Cluster, Host, Job, Pod

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
    seed: int = 0


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one policy."""

    policy: str
    figures: dict[str, float]
    jobs: int
    dropped: int = 0
    events: int = 0
    cpu_s: float = 0.0


def compare(
    jobs: Sequence[Job], policies: Sequence[str], setup: Setup
) -> Iterator[Line]:
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
        yield Line(
            policy=policy,
            figures={name: METRICS[name](outcome) for name in SHOWN},
            jobs=len(outcome.submitted_s),
            dropped=dropped,
            events=outcome.events,
            cpu_s=process_time() - began_s,
        )


def replay_by(policy: str, setup: Setup) -> Callable[[Sequence[Job]], Outcome]:
    """Return how to replay jobs under a policy; raises `PolicyError` if unknown."""
    cluster = setup.cluster
    slots = cluster.gpus if cluster else setup.slots
    if setup.protocol == "muri":
        if cluster is None:
            raise UsageError(
                "the protocol muri needs a cluster", hint="give its file by --cluster"
            )
        chooser_named(policy)
        return partial(muri, cluster=cluster, policy=policy)
    if setup.preemptive:
        chooser = chooser_named(policy)
        return lambda jobs: PreemptiveReplay(
            jobs,
            partial(_rooms, setup),
            chooser,
            work_s=[job.run_s for job in jobs],
            overhead_s=[start_overhead_s(job) for job in jobs],
            options=PreemptiveOptions(),
        ).run()
    waiting((), 1, policy)
    if setup.protocol == "rlscheduler":
        backfill = setup.backfill != "none"
        return partial(rlscheduler, slots=slots, policy=policy, backfill=backfill)
    options = BatchOptions("again", setup.backfill)
    return lambda jobs: BatchReplay(
        jobs, _rooms(setup), waiting(jobs, slots, policy), options
    ).run()


def _rooms(setup: Setup) -> Rooms:
    cluster = setup.cluster
    if cluster is None:
        return Counted(setup.slots)
    return Hosts(cluster.switches, cluster.hosts_per_switch, cluster.gpus_per_host)


def _warm(outcome: Outcome, warm_up: int) -> Outcome:
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
    jobs: Sequence[Job], policies: Sequence[str], cluster: Cluster, seed: int
) -> Iterator[Line]:
    """Replay jobs on hosts as a live scheduler knows them, by placement policies."""
    registry = Registry()
    made = [registry.make(policy) for policy in policies]
    kept = fitting(jobs, cluster.gpus)
    for name, policy in zip(policies, made, strict=True):
        began_s = process_time()
        pool = PoolReplay(
            kept, cluster.hosts, cluster.gpus_per_host, policy, Random(seed)
        )
        outcome = pool.run()
        yield Line(
            policy=name,
            figures={metric: METRICS[metric](outcome) for metric in SHOWN},
            jobs=len(kept),
            dropped=len(jobs) - len(kept),
            events=outcome.events,
            cpu_s=process_time() - began_s,
        )


def compare_filling(
    hosts: Sequence[Host],
    pods: Sequence[Pod],
    policies: Sequence[str],
    *,
    demand_pct: int,
    candidates: int | None,
    seeds: Sequence[int],
) -> Iterator[Line]:
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
        yield Line(
            policy=policy,
            figures={
                "gpu_allocation_pct": sum(allocated) / len(allocated),
                "placed_pct": 100 * sum(placed) / len(placed),
            },
            jobs=len(pods),
            events=sum(len(each.arrived_milli) for each in fills),
            cpu_s=process_time() - began_s,
        )
