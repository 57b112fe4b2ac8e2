"""Jobs that run to their end once started: batch queues, with and without backfill."""

from __future__ import annotations

from bisect import bisect_left, insort
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, final

import msgspec
import numpy as np

from shoal.model.ids import NodeId
from shoal.model.resources import Allocation, Capacity, Profile
from shoal.policy.backfill import Plan, Running, Wish
from shoal.policy.easy import Reservation, reserve
from shoal.sim.coarse.figures import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.sim.coarse.queues import WaitingJobs
    from shoal.sim.coarse.rooms import Rooms, Taken
    from shoal.sim.traces.values import Job

Backfill: TypeAlias = Literal["none", "easy", "conservative"]
Picking: TypeAlias = Literal["once", "again"]

PROMISES_MAX: Final = 16
"""Jobs that conservative backfill makes a promise to, as a live scheduler would."""

POOL: Final = NodeId("pool")


class BatchOptions(msgspec.Struct, frozen=True):
    """How a queue is served.

    With `picking` "again" everything is thought over whenever something changes. With
    "once" the first job is picked and stays first until it fits, whoever comes; and
    backfill is as published with RLScheduler: the promise is worked out when the job
    is picked, others pass in the order of their submits, and only if they are to end
    before it. Arrivals come before ends at the same time.
    """

    picking: Picking = "again"
    backfill: Backfill = "none"


@final
class BatchReplay:
    """Replays jobs on slots."""

    def __init__(
        self,
        jobs: Sequence[Job],
        rooms: Rooms,
        queue: WaitingJobs,
        options: BatchOptions,
    ) -> None:
        """Take jobs in the order in which they come; each must fit an idle cluster."""
        assert all(0 < job.slots <= rooms.slots for job in jobs)
        self._jobs = jobs
        self._rooms = rooms
        self._queue = queue
        self._options = options
        self._submitted = [job.submitted_s for job in jobs]
        self._run = [job.run_s for job in jobs]
        self._time = [job.requested_s for job in jobs]
        self._slots = [job.slots for job in jobs]
        self._started = [0.0] * len(jobs)
        self._running: list[tuple[float, int]] = []  # a heap, by the end
        self._taken: dict[int, Taken] = {}
        self._by_submit: list[tuple[float, int]] = []  # those that wait
        self._next = 0
        self._now = self._submitted[0] if jobs else 0.0
        self._events = 0

    def run(self) -> Outcome:
        """Replay all jobs; return what became of them."""
        if self._options.picking == "once":
            self._run_picking_once()
        else:
            self._run_picking_again()
        started, run = np.array(self._started), np.array(self._run)
        return Outcome(
            np.array(self._submitted),
            started,
            started + run,
            run,
            np.array(self._slots, float),
            self._rooms.slots,
            events=self._events,
        )

    # What happens.

    def _arrive(self) -> None:
        job, self._next = self._next, self._next + 1
        self._now = max(self._now, self._submitted[job])
        self._queue.add(job)
        insort(self._by_submit, (self._submitted[job], job))
        self._events += 1

    def _end(self) -> None:
        end_s, job = heappop(self._running)
        self._now = max(self._now, end_s)
        self._rooms.give(self._taken.pop(job))
        self._events += 1

    def _start(self, job: int) -> bool:
        taken = self._rooms.take(self._slots[job])
        if taken is None:
            return False
        self._taken[job] = taken
        self._started[job] = self._now
        heappush(self._running, (self._now + self._run[job], job))
        self._queue.remove(job)
        place = bisect_left(self._by_submit, (self._submitted[job], job))
        del self._by_submit[place]
        return True

    def _latest_ends(self) -> list[tuple[float, int]]:
        """Return when running jobs end at the latest, by what was requested."""
        started, time = self._started, self._time
        return [
            (started[job] + time[job], self._slots[job]) for _, job in self._running
        ]

    # Thinking everything over whenever something changes.

    def _run_picking_again(self) -> None:
        while self._next < len(self._jobs) or self._queue:
            self._advance()
            if self._options.backfill == "conservative":
                self._serve_by_plan()
            else:
                self._serve()

    def _advance(self) -> None:
        """Go to the next point in time; take in all that happens then."""
        arrives = self._next < len(self._jobs)
        at_s = self._submitted[self._next] if arrives else float("inf")
        if self._running:
            at_s = min(at_s, self._running[0][0])
        self._now = max(self._now, at_s)
        while self._running and self._running[0][0] <= self._now:
            self._end()
        while self._next < len(self._jobs) and (
            self._submitted[self._next] <= self._now
        ):
            self._arrive()

    def _serve(self) -> None:
        """Start jobs in order; with backfill, those behind one that has to wait."""
        kept: Reservation | None = None
        for job in list(self._queue.in_order(self._now)):
            if self._rooms.free == 0:
                return
            ends_s = self._now + self._time[job]
            slots = self._slots[job]
            if kept is not None and not kept.lets_pass(slots, ends_s):
                continue
            if self._start(job):
                kept = kept and kept.without(slots, ends_s)
            elif kept is None:
                if self._options.backfill == "none":
                    return
                ends = self._latest_ends()
                kept = reserve(slots, self._rooms.free, ends, self._now)

    def _serve_by_plan(self) -> None:
        """Start whoever the plan of a live scheduler would let start now."""
        plan = Plan(
            {POOL: Capacity(cpu_milli=self._rooms.slots)},
            [
                Running(POOL, Allocation(slots), max(0.0, ends_s - self._now))
                for ends_s, slots in self._latest_ends()
            ],
        )
        for number, job in enumerate(list(self._queue.in_order(self._now))):
            if self._rooms.free == 0 or number == PROMISES_MAX:
                return
            wish = Wish(Profile(self._slots[job]), 1, self._time[job])
            promise = plan.promise(wish)
            if promise is not None and promise.starts_in_s == 0.0:
                self._start(job)

    # Picking a job once, and staying with it.

    def _run_picking_once(self) -> None:
        while self._next < len(self._jobs) or self._queue:
            while not self._queue:
                self._arrival_or_end()
            job = self._queue.first(self._now)
            if not self._start(job):
                self._wait_for(job)

    def _arrival_or_end(self) -> bool:
        """Let one thing happen; return whether it was an arrival."""
        arrives = self._next < len(self._jobs)
        if arrives and (
            not self._running or self._submitted[self._next] <= self._running[0][0]
        ):
            self._arrive()
            return True
        self._end()
        return False

    def _wait_for(self, picked: int) -> None:
        backfill = self._options.backfill != "none"
        ends = self._latest_ends() if backfill else []
        kept = reserve(self._slots[picked], self._rooms.free, ends, self._now)
        more_room = True
        while True:
            if backfill:
                # Nobody who could not pass before can pass now unless room came free.
                newest = self._next - 1
                candidates = (
                    [job for _, job in self._by_submit] if more_room else [newest]
                )
                self._let_pass(candidates, kept.at_s)
            more_room = not self._arrival_or_end()
            if more_room and self._start(picked):
                return

    def _let_pass(self, candidates: Sequence[int], before_s: float) -> None:
        for job in candidates:
            if self._rooms.free == 0:
                return
            if self._now + self._time[job] < before_s:
                self._start(job)
