"""The waiting jobs of a replay: by an order, by foresight, or as a live queue."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Protocol, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from shoal.model.ids import OwnerId
from shoal.model.resources import GpuNeed, Profile
from shoal.policy.queueing.minnow import MinnowForesight
from shoal.policy.queueing.queue import QueueEntry, QueuePool, TaskQueue, Usage
from shoal.policy.queueing.queue_orders import FloatOrColumn
from shoal.policy.table.rows import Floats

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from shoal.lab.traces.values import TraceJob
    from shoal.policy.queueing.queue_orders import QueueOrder

Indices: TypeAlias = NDArray[np.int64]


@final
class JobColumns:
    """What orders may look at, of all jobs; what is left changes as jobs run."""

    def __init__(self, jobs: Sequence[TraceJob]) -> None:
        self.submitted_s: Floats = np.array([job.submitted_s for job in jobs], float)
        self.time_s: Floats = np.array([job.requested_s for job in jobs], float)
        self.slots: Floats = np.array([job.slots for job in jobs], float)
        self.remaining_s: Floats = self.time_s.copy()
        self.served_slot_s: Floats = np.zeros(len(jobs))

    def __len__(self) -> int:
        return len(self.submitted_s)

    def only(self, chosen: Indices) -> SomeJobs:
        """Return the columns of some of the jobs."""
        return SomeJobs(
            self.submitted_s[chosen],
            self.slots[chosen],
            self.time_s[chosen],
            self.remaining_s[chosen],
            self.served_slot_s[chosen],
        )


@final
class SomeJobs:
    """Some of the jobs, or one; satisfies `WaitingJob` of the orders."""

    __slots__ = ("remaining_s", "served_slot_s", "slots", "submitted_s", "time_s")

    def __init__(
        self,
        submitted_s: FloatOrColumn,
        slots: FloatOrColumn,
        time_s: FloatOrColumn,
        remaining_s: FloatOrColumn,
        served_slot_s: FloatOrColumn,
    ) -> None:
        self.submitted_s = submitted_s
        self.slots = slots
        self.time_s = time_s
        self.remaining_s = remaining_s
        self.served_slot_s = served_slot_s


class WaitingJobs(Protocol):
    """Jobs that wait, by their numbers."""

    def __len__(self) -> int: ...

    def add(self, job: int) -> None:
        """Let a job wait."""
        ...

    def remove(self, job: int, now: float) -> None:
        """Take a job out: it starts."""
        ...

    def in_order(self, now: float) -> Iterable[int]:
        """Go through the jobs; the queue must not change meanwhile."""
        ...

    def sort(self, jobs: list[int], now: float) -> None:
        """Sort jobs that wait, the first first; equal ones keep their places."""
        ...


@final
class Ordered:
    """Jobs by an order. Keys that never change are worked out once, for all jobs."""

    def __init__(self, order: QueueOrder, columns: JobColumns) -> None:
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

    def remove(self, job: int, now: float) -> None:
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

    def sort(self, jobs: list[int], now: float) -> None:
        """Sort jobs that wait; keys that never change tie by when jobs came."""
        if self._settled:
            keys, submitted = self._keys, self._submitted
            jobs.sort(key=lambda job: (keys[job], submitted[job]))
        else:
            some = self._columns.only(np.array(jobs, np.int64))
            places = np.argsort(self._order.key(some, now), kind="stable")
            jobs[:] = [jobs[place] for place in places]

    def _entry(self, job: int) -> tuple[float, float, int]:
        key = self._keys[job] if self._settled else 0.0
        return key, self._submitted[job], job


class Room(Protocol):
    """What a queue may look at of the cluster that it is served by."""

    def idle_s(self, jobs: Sequence[int]) -> Floats:
        """Return how long the whole cluster would idle for each job until it fits."""
        ...


@final
class Foreseen:
    """Jobs by `MinnowForesight`, which looks at the room and learns from what ends."""

    def __init__(self, columns: JobColumns, capacity: int) -> None:
        self._columns = columns
        self._minnow = MinnowForesight(capacity)
        self._waiting: dict[int, None] = {}
        self.room: Room | None = None  # set by who serves the queue

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, job: int) -> None:
        """Let a job wait."""
        self._waiting[job] = None

    def remove(self, job: int, now: float) -> None:
        """Take a job out: it starts."""
        del self._waiting[job]

    def ended(self, job: int, run_s: float) -> None:
        """Learn how long a job ran."""
        self._minnow.ended(float(self._columns.time_s[job]), run_s)

    def in_order(self, now: float) -> Iterable[int]:
        """Go through the jobs, the first first."""
        jobs = list(self._waiting)
        self.sort(jobs, now)
        return jobs

    def sort(self, jobs: list[int], now: float) -> None:
        """Sort jobs that wait; equal ones keep their places."""
        if len(jobs) < 2:
            return
        assert self.room is not None
        chosen = np.array(jobs, np.int64)
        slots, time_s = self._columns.slots[chosen], self._columns.time_s[chosen]
        keys = self._minnow.keys(slots, time_s, self.room.idle_s(jobs))
        jobs[:] = [jobs[place] for place in np.argsort(keys, kind="stable")]


def one_task(slots: int) -> tuple[Profile, int]:
    """Return a job as one task that wants its slots as GPUs."""
    return Profile(gpu=GpuNeed(slots, slots)), 1


@final
class Live:
    """The queue of a live scheduler: priority, fair share between owners, age.

    `tasks_of` turns a job's slots into tasks: what one needs, and how many there are.
    """

    def __init__(
        self,
        jobs: Sequence[TraceJob],
        slots: int,
        tasks_of: Callable[[int], tuple[Profile, int]] = one_task,
    ) -> None:
        self._jobs = jobs
        self._tasks_of = tasks_of
        self._queue = TaskQueue()
        self._usage = Usage(QueuePool(gpu_milli=1_000 * slots))

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, job: int) -> None:
        """Let a job wait."""
        known = self._jobs[job]
        profile, count = self._tasks_of(known.slots)
        owner, since = _owner(known), known.submitted_s
        self._queue.put(QueueEntry(_id(job), owner, 0, since, profile, count))

    def remove(self, job: int, now: float) -> None:
        """Take a job out: it starts, and what it will use is charged to its owner."""
        known = self._jobs[job]
        profile, count = self._tasks_of(known.slots)
        self._queue.remove(_id(job))
        self._usage.charge(_owner(known), profile, known.run_s * count, now)

    def in_order(self, now: float) -> Iterable[int]:
        """Go through the jobs, the first first."""
        return (int(entry.id) for entry in self._queue.ordered(self._usage, now))

    def sort(self, jobs: list[int], now: float) -> None:
        """Sort jobs that wait, the first first."""
        places = {job: place for place, job in enumerate(self.in_order(now))}
        jobs.sort(key=places.__getitem__)


def _owner(job: TraceJob) -> OwnerId:
    return OwnerId(job.owner or "nobody")


def _id(job: int) -> str:
    return f"{job:09d}"  # Of equal entries the smallest id is first.
