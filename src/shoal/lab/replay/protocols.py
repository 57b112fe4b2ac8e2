"""Published simulators' protocols: what they do that clusters do not.

Everything here is a quirk of a paper's protocol, never of a policy.
"""

from __future__ import annotations

from functools import partial
from heapq import heappop, heappush
from math import ceil
from typing import TYPE_CHECKING, Final, final

import msgspec
import numpy as np

from shoal.lab.replay.clusters import CountedSlots, HostSlots
from shoal.lab.replay.preemption_rules import ByService, rule_named
from shoal.lab.replay.preemptive import Preemptive, PreemptiveOptions
from shoal.lab.replay.queues import Foreseen, JobColumns, Live, Ordered
from shoal.lab.replay.run_to_completion import RunToCompletion
from shoal.policy.queueing.easy_backfill import reserve
from shoal.policy.queueing.queue_orders import Minnow, order_named

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from shoal.lab.replay.figures import ReplayOutcome
    from shoal.lab.replay.queues import WaitingJobs
    from shoal.lab.traces.values import Cluster, TraceJob

UNKNOWN_RUN_S: Final = 10.0
"""RLScheduler lets jobs of unknown length run this long."""

STEP_FACTOR: Final = 1.015
"""Muri's steps take this much longer than the trace says."""

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


def start_overhead_s(job: TraceJob) -> float:
    """Return how long a job takes to start; with other numbers of GPUs as the next."""
    by_size = OVERHEAD_S.get(job.model)
    if by_size is None:
        return UNKNOWN_OVERHEAD_S
    place = max(0, job.slots - 1).bit_length()
    return float(by_size[min(place, len(by_size) - 1)])


def rlscheduler_jobs(jobs: Iterable[TraceJob]) -> list[TraceJob]:
    """Return the jobs as RLScheduler numbers them: by id, without jobs of length 0.

    A job of unknown length gets one, but not what its user requested: that stays -1
    if it is unknown, too.
    """
    known = [
        msgspec.structs.replace(job, run_s=UNKNOWN_RUN_S) if job.run_s < 0 else job
        for job in jobs
        if job.run_s != 0 and job.slots > 0
    ]
    return sorted(known, key=lambda job: int(job.id))


def rlscheduler(
    jobs: Sequence[TraceJob],
    slots: int,
    policy: str,
    *,
    backfill: bool,
    nodes: int | None = None,
) -> ReplayOutcome:
    """Replay a window of jobs on an empty cluster, as RLScheduler does (SC 2020).

    It gives out whole nodes: `nodes` is how many the slots are on, by default one each.
    Orders go by the slots that a job wants.
    """
    queue = waiting(jobs, slots, policy)
    nodes = nodes or slots
    replace = msgspec.structs.replace
    by_nodes = [replace(job, slots=ceil(job.slots / (slots / nodes))) for job in jobs]
    outcome = PickOnce(by_nodes, CountedSlots(nodes), queue, backfill=backfill).run()
    return replace(
        outcome, slots=np.array([job.slots for job in jobs], float), capacity=slots
    )


@final
class PickOnce(RunToCompletion[int]):
    """Picks the first job, which then blocks the queue until it fits.

    So RLScheduler serves a queue. Arrivals come before ends at the same time, and each
    is looked at by itself. With backfill, the promise to the picked job is worked out
    once; others pass in the order of their submits, and only if they end before it.

    Of equal jobs, the first is whoever is first in its lists, which are sorted in place
    now and then. Jobs that wait: by the order at each pick, by submits when others may
    pass. Jobs that run: by requested ends whenever a promise is worked out, by real
    ends at each event; started jobs go to the end.
    """

    arrivals_first = True

    def __init__(
        self,
        jobs: Sequence[TraceJob],
        cluster: CountedSlots,
        queue: WaitingJobs,
        *,
        backfill: bool,
    ) -> None:
        super().__init__(jobs, cluster, queue)
        self._backfill = backfill
        self._line: list[int] = []  # the waiting jobs
        self._picked: int | None = None
        self._before_s = 0.0  # Who passes must end before this time.
        self._newest: int | None = None  # the job that came, unless one has ended
        self._numbers = [0] * len(jobs)  # how many jobs had started before
        self._starts = 0
        self._starts_listed = 0  # of those, how many when a promise was worked out

    def arrive(self, job: int, now: float) -> None:
        """Let a job wait."""
        super().arrive(job, now)
        self._newest = job
        self._line.append(job)

    def advance(self, now: float) -> None:
        """End the first of the jobs that end until `now`."""
        self.now = now
        self._newest = None
        end_s, job = heappop(self.running)
        if self.running and self.running[0][0] == end_s:
            job = self._first_of_tied(end_s, job)
        self.end(job)

    def _first_of_tied(self, end_s: float, job: int) -> int:
        tied = [job]
        while self.running and self.running[0][0] == end_s:
            tied.append(heappop(self.running)[1])
        tied.sort(key=self._place_in_list)
        for other in tied[1:]:
            heappush(self.running, (end_s, other))
        return tied[0]

    def _place_in_list(self, job: int) -> tuple[bool, float, int]:
        number = self._numbers[job]
        if number >= self._starts_listed:
            return True, 0.0, number
        return False, self.started[job] + self.requested[job], number

    def start(self, job: int) -> bool:
        """Start a job that waits, if it fits."""
        if not super().start(job):
            return False
        self._numbers[job] = self._starts
        self._starts += 1
        self._line.remove(job)
        return True

    def serve(self) -> None:
        """Start the picked job and pick the next; or let others pass."""
        if self._picked is not None:
            if self._newest is not None:  # No other job can pass without more room.
                self._let_pass([self._newest])
                return
            if not self.start(self._picked):
                self._let_pass(self._line)
                return
            self._picked = None
        while self._line:
            self.queue.sort(self._line, self.now)
            job = self._line[0]
            if not self.start(job):
                self._pick(job)
                return

    def _pick(self, job: int) -> None:
        self._picked = job
        if self._backfill:
            ends = self.latest_ends()
            kept = reserve(self.slots[job], self.cluster.free, ends, self.now)
            self._before_s = kept.at_s
            self._starts_listed = self._starts
            self._let_pass(self._line)

    def _let_pass(self, jobs: list[int]) -> None:
        if not self._backfill:
            return
        self._line.sort(key=self.submitted.__getitem__)
        cluster, requested = self.cluster, self.requested
        now, before_s = self.now, self._before_s
        for job in jobs.copy():
            if cluster.free == 0:
                return
            if now + requested[job] < before_s:
                self.start(job)


def waiting(jobs: Sequence[TraceJob], slots: int, policy: str) -> WaitingJobs:
    """Return a queue by the order of this name, or that of a live scheduler.

    Minnow also looks at the room and learns from what ends: a replay can tell it.
    """
    if policy.lower() == LIVE:
        return Live(jobs, slots)
    if policy.lower() == Minnow.name:
        return Foreseen(JobColumns(jobs), slots)
    return Ordered(order_named(policy), JobColumns(jobs))


LIVE: Final = "shoal"
"""The order of a live scheduler: priority, then fair share, then age."""


def muri(jobs: Sequence[TraceJob], cluster: Cluster, policy: str) -> ReplayOutcome:
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
    rule = rule_named(policy)
    return Preemptive(
        jobs,
        partial(CountedSlots, cluster.gpus)
        if isinstance(rule, ByService)
        else partial(
            HostSlots, cluster.switches, cluster.hosts_per_switch, cluster.gpus_per_host
        ),
        rule,
        work_s=work_s,
        overhead_s=[start_overhead_s(job) for job in jobs],
        options=PreemptiveOptions("at every event", whole_seconds=True),
    ).run()
