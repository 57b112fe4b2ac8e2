"""Jobs on a table of workers, as a live scheduler knows them: for very many hosts.

The queue, the table and the placement are those of a live scheduler. Jobs run to
their end; one that is larger than a host is a gang of tasks of a host each.
"""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING, final

import numpy as np

from shoal.model.ids import NodeId, OwnerId
from shoal.model.resources import Capacity, Device, GpuNeed, Profile
from shoal.policy.placement import place
from shoal.policy.queue import Pool, QueueEntry, TaskQueue, Usage
from shoal.policy.workers import Taken, WorkerTable, WorkerView
from shoal.sim.coarse.figures import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from shoal.policy.placement import Policy
    from shoal.sim.traces.values import Job


@final
class PoolReplay:
    """Replays jobs on so many equal hosts."""

    def __init__(
        self,
        jobs: Sequence[Job],
        hosts: int,
        gpus_per_host: int,
        policy: Policy,
        rng: Random,
    ) -> None:
        """Take jobs in the order in which they come; each must fit an idle pool."""
        self._jobs = jobs
        self._gpus_per_host = gpus_per_host
        self._gpus = hosts * gpus_per_host
        assert all(0 < job.slots <= self._gpus for job in jobs)
        self._policy = policy
        self._rng = rng
        self._table = _pool(hosts, gpus_per_host)
        self._queue = TaskQueue()
        self._usage = Usage(Pool(gpu_milli=1_000 * self._gpus))
        self._running: list[tuple[float, int]] = []  # a heap, by the end
        self._taken: dict[int, tuple[Taken, ...]] = {}
        self._started = [0.0] * len(jobs)
        self._free = self._gpus
        self._next = 0
        self._now = 0.0
        self._events = 0

    def run(self) -> Outcome:
        """Replay all jobs; return what became of them."""
        while self._next < len(self._jobs) or len(self._queue):
            self._advance()
            self._serve()
        run = np.array([job.run_s for job in self._jobs])
        started = np.array(self._started)
        return Outcome(
            np.array([job.submitted_s for job in self._jobs]),
            started,
            started + run,
            run,
            np.array([job.slots for job in self._jobs], float),
            self._gpus,
            events=self._events,
        )

    def _advance(self) -> None:
        """Go to the next point in time; take in all that happens then."""
        jobs = self._jobs
        at_s = jobs[self._next].submitted_s if self._next < len(jobs) else inf
        if self._running:
            at_s = min(at_s, self._running[0][0])
        self._now = max(self._now, at_s)
        while self._running and self._running[0][0] <= self._now:
            self._end(heappop(self._running)[1])
        while self._next < len(jobs) and jobs[self._next].submitted_s <= self._now:
            self._arrive(self._next)
            self._next += 1

    def _arrive(self, job: int) -> None:
        known = self._jobs[job]
        profile, count = self._tasks(known)
        owner = OwnerId(known.owner or "nobody")
        self._queue.put(
            QueueEntry(f"{job:09d}", owner, 0, known.submitted_s, profile, count)
        )
        self._events += 1

    def _end(self, job: int) -> None:
        for taken in self._taken.pop(job):
            self._table.give(taken)
        self._free += self._jobs[job].slots
        self._events += 1

    def _serve(self) -> None:
        """Start whoever fits, in the order of the queue; of equal needs try one."""
        stuck: dict[tuple[Profile, int], None] = {}
        started: list[QueueEntry] = []
        for entry in self._queue.ordered(self._usage, self._now):
            if self._free == 0:
                break
            kind = (entry.profile, entry.count)
            if kind not in stuck and not self._start(entry):
                stuck[kind] = None
            elif kind not in stuck:
                started.append(entry)
        for entry in started:
            self._queue.remove(entry.id)

    def _start(self, entry: QueueEntry) -> bool:
        job = int(entry.id)
        if self._jobs[job].slots > self._free:
            return False
        placed = place(entry.profile, entry.count, self._table, self._policy, self._rng)
        if len(placed.takens) < entry.count:
            for taken in placed.takens:
                self._table.give(taken)
            return False
        self._taken[job] = placed.takens
        self._started[job] = self._now
        self._free -= self._jobs[job].slots
        run_s = self._jobs[job].run_s
        self._usage.charge(entry.owner, entry.profile, run_s * entry.count, self._now)
        heappush(self._running, (self._now + run_s, job))
        return True

    def _tasks(self, job: Job) -> tuple[Profile, int]:
        """Return what one task needs, and how many there are.

        A gang that is no multiple of a host is rounded up to tasks that are equal.
        """
        count = -(-job.slots // self._gpus_per_host)
        gpus = -(-job.slots // count)
        return Profile(gpu=GpuNeed(gpus, gpus)), count


def _pool(hosts: int, gpus_per_host: int) -> WorkerTable:
    devices = tuple(Device(str(n), "", "GPU") for n in range(gpus_per_host))
    capacity = Capacity(devices=devices)
    table = WorkerTable()
    for number in range(hosts):
        table.put(WorkerView.idle(NodeId(f"h{number:07d}"), capacity))
    return table
