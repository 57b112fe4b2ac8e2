"""Jobs that run to their end once started: who starts next, and who may pass.

`RunToCompletion` keeps what runs, and when it ends, for the engine. Its subclasses are
rules: `InOrder` serves a batch queue, with or without backfill; `EveryFit` starts
every job that fits, as a live scheduler does; `protocols` has the rule of a published
simulator.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING, Final, Generic, Literal, TypeAlias, TypeVar, final

import numpy as np

from shoal.lab.replay.engine import replay
from shoal.lab.replay.figures import ReplayOutcome
from shoal.lab.replay.queues import Foreseen
from shoal.model.ids import NodeId
from shoal.model.resources import Allocation, Capacity, Profile
from shoal.policy.queueing.backfill import BackfillPlan, BackfillWish, Running
from shoal.policy.queueing.easy_backfill import (
    EasyReservation,
    idle_slot_s,
    reserve,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.lab.replay.clusters import ClusterModel
    from shoal.lab.replay.queues import WaitingJobs
    from shoal.lab.traces.values import TraceJob
    from shoal.policy.table.rows import Floats

T = TypeVar("T")

Backfill: TypeAlias = Literal["none", "easy", "conservative"]

PROMISES_MAX: Final = 16
"""Jobs that conservative backfill makes a promise to, as a live scheduler would."""

POOL: Final = NodeId("pool")


class RunToCompletion(ABC, Generic[T]):
    """Replays jobs that run to their end; a subclass decides who starts."""

    arrivals_first = False

    def __init__(
        self, jobs: Sequence[TraceJob], cluster: ClusterModel[T], queue: WaitingJobs
    ) -> None:
        """Take jobs in the order in which they come; each must fit an idle cluster."""
        assert all(0 < job.slots <= cluster.slots for job in jobs)
        self.cluster = cluster
        self.queue = queue
        self.now = 0.0
        self.submitted = [job.submitted_s for job in jobs]
        self.requested = [job.requested_s for job in jobs]
        self.slots = [job.slots for job in jobs]
        self.started = [0.0] * len(jobs)
        self.running: list[tuple[float, int]] = []  # a heap, by the end
        self._run = [job.run_s for job in jobs]
        self._taken: dict[int, T] = {}
        self._events = 0
        self._foreseen = queue if isinstance(queue, Foreseen) else None
        if self._foreseen is not None:
            self._foreseen.room = self

    def run(self) -> ReplayOutcome:
        """Replay all jobs; return what became of them."""
        replay(self.submitted, self)
        started, run = np.array(self.started), np.array(self._run)
        return ReplayOutcome(
            np.array(self.submitted),
            started,
            started + run,
            run,
            np.array(self.slots, float),
            self.cluster.slots,
            events=self._events,
        )

    def is_done(self) -> bool:
        """Whether nothing waits: what runs ends by itself."""
        return not self.queue

    def next_change(self) -> float:
        """Return the next end."""
        return self.running[0][0] if self.running else inf

    def advance(self, now: float) -> None:
        """End all jobs that end until `now`."""
        self.now = now
        while self.running and self.running[0][0] <= now:
            self.end(heappop(self.running)[1])

    def arrive(self, job: int, now: float) -> None:
        """Let a job wait."""
        self.now = now
        self.queue.add(job)
        self._events += 1

    @abstractmethod
    def serve(self) -> None:
        """Start jobs, by `start`."""

    def end(self, job: int) -> None:
        """Free the room of a job that is no longer in `running`."""
        self.cluster.give(self._taken.pop(job))
        self._events += 1
        if self._foreseen is not None:
            self._foreseen.ended(job, self._run[job])

    def start(self, job: int) -> bool:
        """Start a job that waits, if it fits."""
        fits = self.occupy(job)
        if fits:
            self.queue.remove(job, self.now)
        return fits

    def occupy(self, job: int) -> bool:
        """Start a job if it fits, and leave it in the queue."""
        taken = self.cluster.take(self.slots[job])
        if taken is None:
            return False
        self._taken[job] = taken
        self.started[job] = self.now
        heappush(self.running, (self.now + self._run[job], job))
        return True

    def latest_ends(self) -> list[tuple[float, int]]:
        """Return when running jobs end at the latest, by what was requested."""
        started, requested, slots = self.started, self.requested, self.slots
        return [(started[job] + requested[job], slots[job]) for _, job in self.running]

    def idle_s(self, jobs: Sequence[int]) -> Floats:
        """Return how long the whole cluster would idle for each job until it fits."""
        wanted = np.array([self.slots[job] for job in jobs])
        idle = idle_slot_s(wanted, self.cluster.free, self.latest_ends(), self.now)
        return idle / self.cluster.slots


@final
class InOrder(RunToCompletion[T]):
    """Starts jobs in the order of the queue; with backfill, others may pass.

    "easy" makes a promise to the first job that must wait; "conservative" makes one
    to each of the first jobs, by the plan of a live scheduler.
    """

    def __init__(
        self,
        jobs: Sequence[TraceJob],
        cluster: ClusterModel[T],
        queue: WaitingJobs,
        backfill: Backfill,
    ) -> None:
        super().__init__(jobs, cluster, queue)
        self._backfill = backfill

    def serve(self) -> None:
        """Go through the whole queue."""
        if self._backfill == "conservative":
            self._serve_by_plan()
        else:
            self._serve_in_order()

    def _serve_in_order(self) -> None:
        kept: EasyReservation | None = None
        for job in list(self.queue.in_order(self.now)):
            if self.cluster.free == 0:
                return
            ends_s = self.now + self.requested[job]
            slots = self.slots[job]
            if kept is not None and not kept.lets_pass(slots, ends_s):
                continue
            if self.start(job):
                kept = kept and kept.without(slots, ends_s)
            elif kept is None:
                if self._backfill == "none":
                    return
                kept = reserve(slots, self.cluster.free, self.latest_ends(), self.now)

    def _serve_by_plan(self) -> None:
        """Start the jobs that the plan of a live scheduler would let start now."""
        plan = BackfillPlan(
            {POOL: Capacity(cpu_milli=self.cluster.slots)},
            [
                Running(POOL, Allocation(slots), max(0.0, ends_s - self.now))
                for ends_s, slots in self.latest_ends()
            ],
        )
        for number, job in enumerate(list(self.queue.in_order(self.now))):
            if self.cluster.free == 0 or number == PROMISES_MAX:
                return
            wish = BackfillWish(Profile(self.slots[job]), 1, self.requested[job])
            promise = plan.promise(wish)
            if promise is not None and promise.starts_in_s == 0.0:
                self.start(job)


@final
class EveryFit(RunToCompletion[T]):
    """Starts every job that fits, in the order of the queue; tries each size once."""

    def serve(self) -> None:
        """Go through the queue until the room is full."""
        stuck: dict[object, None] = {}
        started: list[int] = []
        for job in self.queue.in_order(self.now):
            if self.cluster.free == 0:
                break
            kind = self.cluster.kind(self.slots[job])
            if kind in stuck:
                continue
            if self.occupy(job):
                started.append(job)
            else:
                stuck[kind] = None
        for job in started:
            self.queue.remove(job, self.now)
