"""The jobs that wait, by an order of the policies, or as a live scheduler has them."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Protocol, final

import numpy as np

from shoal.model.ids import OwnerId
from shoal.model.resources import GpuNeed, Profile
from shoal.policy.queue import Pool, QueueEntry, TaskQueue, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from shoal.policy.orders import Order
    from shoal.sim.coarse.columns import JobColumns
    from shoal.sim.traces.values import Job


class WaitingJobs(Protocol):
    """Jobs that wait, by their numbers."""

    def __len__(self) -> int: ...

    def add(self, job: int) -> None:
        """Let a job wait."""
        ...

    def remove(self, job: int) -> None:
        """Take a job out: it starts."""
        ...

    def in_order(self, now: float) -> Iterable[int]:
        """Go through the jobs; the queue must not change meanwhile."""
        ...

    def first(self, now: float) -> int:
        """Return who is next."""
        ...


@final
class Ordered:
    """Jobs by an order. Keys that never change are worked out once, for all jobs."""

    def __init__(self, order: Order, columns: JobColumns) -> None:
        self._order = order
        self._columns = columns
        self._settled = order.changes != "by waiting"
        self._keys: list[float] = []
        if self._settled:
            keys = order.key(columns, 0.0)
            self._keys = np.broadcast_to(keys, len(columns)).tolist()
        self._submitted: list[float] = columns.submitted_s.tolist()
        self._waiting: list[tuple[float, float, int]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, job: int) -> None:
        """Let a job wait."""
        insort(self._waiting, self._entry(job))

    def remove(self, job: int) -> None:
        """Take a job out: it starts."""
        del self._waiting[bisect_left(self._waiting, self._entry(job))]

    def in_order(self, now: float) -> Iterable[int]:
        """Go through the jobs, the first first."""
        if self._settled:
            return [job for _, _, job in self._waiting]
        # The entries are in the order of submits, and the sort is stable.
        jobs = np.array([job for _, _, job in self._waiting], np.int64)
        keys = self._order.key(self._columns.only(jobs), now)
        ranked: list[int] = jobs[np.argsort(keys, kind="stable")].tolist()
        return ranked

    def first(self, now: float) -> int:
        """Return who is next."""
        if self._settled:
            return self._waiting[0][2]
        jobs = np.array([job for _, _, job in self._waiting], np.int64)
        return int(jobs[np.argmin(self._order.key(self._columns.only(jobs), now))])

    def _entry(self, job: int) -> tuple[float, float, int]:
        key = self._keys[job] if self._settled else 0.0
        return key, self._submitted[job], job


@final
class Live:
    """The queue of a live scheduler: priority, fair share between owners, age."""

    def __init__(self, jobs: Sequence[Job], slots: int) -> None:
        self._jobs = jobs
        self._queue = TaskQueue()
        self.usage = Usage(Pool(gpu_milli=1_000 * slots))

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, job: int) -> None:
        """Let a job wait."""
        known = self._jobs[job]
        owner = OwnerId(known.owner or "nobody")
        id_, since, profile = _id(job), known.submitted_s, profile_of(known)
        self._queue.put(QueueEntry(id_, owner, 0, since, profile))

    def remove(self, job: int) -> None:
        """Take a job out: it starts, and what it will use is charged to its owner."""
        known = self._jobs[job]
        self._queue.remove(_id(job))
        owner = OwnerId(known.owner or "nobody")
        used, now = profile_of(known), known.submitted_s
        self.usage.charge(owner, used, known.run_s, now)

    def in_order(self, now: float) -> Iterable[int]:
        """Go through the jobs, the first first."""
        return (int(entry.id) for entry in self._queue.ordered(self.usage, now))

    def first(self, now: float) -> int:
        """Return who is next."""
        return next(iter(self.in_order(now)))


def profile_of(job: Job) -> Profile:
    """Return a job as one task that wants its slots as GPUs."""
    return Profile(gpu=GpuNeed(job.slots, job.slots))


def _id(job: int) -> str:
    return f"{job:09d}"  # Of equal entries the smallest id is first.
