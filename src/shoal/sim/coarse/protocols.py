"""How published results were obtained: what their simulators do that clusters do not.

Everything here is a quirk of a paper's protocol, never of a policy.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from shoal.policy.braid import Braid
from shoal.policy.orders import Las, order_named
from shoal.sim.coarse.batch import BatchOptions, BatchReplay
from shoal.sim.coarse.columns import JobColumns
from shoal.sim.coarse.preemptive import PreemptiveOptions, PreemptiveReplay
from shoal.sim.coarse.queues import Live, Ordered
from shoal.sim.coarse.rooms import Counted, Hosts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from shoal.sim.coarse.figures import Outcome
    from shoal.sim.coarse.preemptive import Chooser
    from shoal.sim.coarse.queues import WaitingJobs
    from shoal.sim.traces.values import Cluster, Job

UNKNOWN_RUN_S: Final = 10.0
"""RLScheduler lets jobs of unknown length run for so long."""

STEP_FACTOR: Final = 1.015
"""Muri's steps take so much longer than the trace says."""

UNKNOWN_OVERHEAD_S: Final = 10.0

OVERHEAD_S: Final = {
    "vgg16": (7, 7, 8, 9, 9, 10),
    "vgg19": (7, 7, 8, 9, 10, 10),
    "resnet18": (4, 5, 5, 7, 7, 7),
    "shufflenet_v2_x1_0": (4, 4, 5, 5, 7, 8),
    "bert": (10, 10, 10, 10, 10, 10),
    "gpt2": (10, 10, 10, 10, 10, 10),
    "a2c": (38, 39, 39, 46, 46, 46),
    "dqn": (5, 5, 6, 6, 8, 8),
}
"""Seconds that it takes to start training a model, on 1, 2, 4, 8, 16 and 32 GPUs."""


def start_overhead_s(job: Job) -> float:
    """Return how long a job takes to start; with other numbers of GPUs as the next."""
    by_size = OVERHEAD_S.get(job.model)
    if by_size is None:
        return UNKNOWN_OVERHEAD_S
    place = max(0, job.slots - 1).bit_length()
    return float(by_size[min(place, len(by_size) - 1)])


def rlscheduler_jobs(jobs: Iterable[Job]) -> list[Job]:
    """Return the jobs as RLScheduler numbers them: by id, without those of length 0."""
    replace = msgspec.structs.replace
    known = [
        replace(
            job,
            run_s=UNKNOWN_RUN_S,
            requested_s=job.requested_s if job.requested_s > 0 else UNKNOWN_RUN_S,
        )
        if job.run_s < 0
        else job
        for job in jobs
        if job.run_s != 0 and job.slots > 0
    ]
    return sorted(known, key=lambda job: int(job.id))


def rlscheduler(
    jobs: Sequence[Job], slots: int, policy: str, *, backfill: bool
) -> Outcome:
    """Replay a window of jobs on an empty cluster, as RLScheduler does (SC 2020)."""
    options = BatchOptions("once", "easy" if backfill else "none")
    queue = waiting(jobs, slots, policy)
    return BatchReplay(jobs, Counted(slots), queue, options).run()


def waiting(jobs: Sequence[Job], slots: int, policy: str) -> WaitingJobs:
    """Return a queue by the order of this name, or that of a live scheduler."""
    if policy.lower() == LIVE:
        return Live(jobs, slots)
    return Ordered(order_named(policy), JobColumns(jobs))


LIVE: Final = "shoal"
"""The order of a live scheduler: priority, then fair share, then age."""


def chooser_named(policy: str) -> Chooser:
    """Return what decides who runs, where jobs can be stopped."""
    return Braid() if policy.lower() == Braid.name else order_named(policy)


def muri(jobs: Sequence[Job], cluster: Cluster, policy: str) -> Outcome:
    """Replay training jobs that can be stopped, as Muri does (SIGCOMM 2022).

    How long jobs run follows from their steps. All are placed anew at every event and
    pay for it; Tiresias counts GPUs only, and looks at the clock in whole seconds.
    """
    replace = msgspec.structs.replace
    jobs = sorted(jobs, key=lambda job: job.submitted_s)
    jobs = [replace(job, step_ms=job.step_ms * STEP_FACTOR) for job in jobs]
    work_s = [
        job.steps * job.step_ms / 1_000 if job.steps and job.step_ms else job.run_s
        for job in jobs
    ]
    chooser = chooser_named(policy)
    return PreemptiveReplay(
        jobs,
        partial(Counted, cluster.gpus)
        if isinstance(chooser, Las)
        else partial(
            Hosts, cluster.switches, cluster.hosts_per_switch, cluster.gpus_per_host
        ),
        chooser,
        work_s=work_s,
        overhead_s=[start_overhead_s(job) for job in jobs],
        options=PreemptiveOptions("at every event", whole_seconds=True),
    ).run()
