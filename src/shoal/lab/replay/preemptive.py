"""Jobs that are stopped and resumed: who runs is decided at every event.

All running jobs are placed anew at each event, from an empty cluster. `Preemptive`
keeps how far each job is; a `PreemptionRule` says who runs: see `preemption_rules`.

Times are whole microseconds, kept in floats, which hold them exactly: with seconds
in floats a job would come close to a level of service and never reach it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import inf
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, final

import msgspec
import numpy as np

from shoal.lab.replay.engine import replay
from shoal.lab.replay.figures import ReplayOutcome
from shoal.lab.replay.queues import JobColumns
from shoal.policy.table.rows import Floats

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from shoal.lab.replay.clusters import CountedSlots, HostSlots
    from shoal.lab.traces.values import TraceJob

TICKS_PER_S: Final = 1_000_000

Overheads: TypeAlias = Literal["none", "when started", "at every event"]


class PreemptiveOptions(msgspec.Struct, frozen=True):
    """How running jobs pay for being started, and when they reach levels of service.

    With "at every event" a running job loses its overhead whenever anything happens in
    the cluster, even if it is not moved: so it was done for Muri. With "when started"
    it pays when it starts or starts again. With `whole_seconds` levels of service are
    reached at whole seconds of running.
    """

    overheads: Overheads = "when started"
    whole_seconds: bool = False


class PreemptionRule(ABC):
    """Says who runs. It may keep something about the jobs of one replay."""

    @abstractmethod
    def begin(self, jobs: Sequence[TraceJob]) -> None:
        """Forget the last replay; these are the jobs of the next."""

    @abstractmethod
    def choose(self, state: Preemptive, came: list[int]) -> dict[int, float]:
        """Add the jobs that came to `state.active`; return who runs, and how fast."""

    def next_choice(self, state: Preemptive, running: Sequence[int]) -> float:
        """Return when to choose anew though no job comes or ends."""
        return inf

    def overhead_of(self, state: Preemptive, job: int) -> float:
        """Return the ticks that a job loses by being started."""
        return float(state.overhead[job])


@final
class Preemptive:
    """Replays jobs on GPUs that are given anew at each event; see `Serving`."""

    arrivals_first = False

    def __init__(
        self,
        jobs: Sequence[TraceJob],
        cluster: Callable[[], CountedSlots | HostSlots],
        rule: PreemptionRule,
        *,
        work_s: Sequence[float],
        overhead_s: Sequence[float],
        options: PreemptiveOptions,
    ) -> None:
        """Take jobs in the order in which they come; `cluster` makes an idle one.

        `work_s` is how long each job runs if it is never stopped.
        """
        self.cluster = cluster
        self._rule = rule
        rule.begin(jobs)
        self.options = options
        self.columns = JobColumns(jobs)
        self.slots: list[int] = [job.slots for job in jobs]
        self.overhead = np.round(np.array(overhead_s, float) * TICKS_PER_S)
        count = len(jobs)
        self.ran = np.zeros(count)  # ticks in which the job ran
        self.speed = np.zeros(count)  # 0: it does not run
        self.active: list[int] = []  # in the order of the last decision
        self.now = 0.0
        self._submitted = np.round(self.columns.submitted_s * TICKS_PER_S)
        self._work = np.round(np.array(work_s, float) * TICKS_PER_S)
        self._left = self._work.copy()  # ticks that are left to run, at full speed
        self._due = np.zeros(count)  # overhead to pay before it goes on
        self._started = np.full(count, -1.0)
        self._ended = np.zeros(count)
        self._running: list[int] = []
        self._ends: list[float] = []  # their ends, if nothing else happens
        self._came: list[int] = []
        self._events = self._preemptions = 0

    def run(self) -> ReplayOutcome:
        """Replay all jobs; return what became of them."""
        replay(self._submitted.tolist(), self)
        return ReplayOutcome(
            self._submitted / TICKS_PER_S,
            self._started / TICKS_PER_S,
            self._ended / TICKS_PER_S,
            self._work / TICKS_PER_S,
            self.columns.slots,
            self.cluster().slots,
            preemptions=self._preemptions,
            events=self._events,
        )

    def is_done(self) -> bool:
        """Whether every job that has arrived has ended."""
        return not self.active

    def next_change(self) -> float:
        """Return the next end, or the next choice."""
        first = min(self._ends, default=inf)
        return min(first, self._rule.next_choice(self, self._running))

    def advance(self, now: float) -> None:
        """Let running jobs go on until `now`, and end."""
        passed = now - self.now
        for job, end in zip(self._running, self._ends, strict=True):
            self.ran[job] += passed
            if end <= now:
                self._ended[job] = now
                self.speed[job] = 0.0
                self._left[job] = 0.0
            else:
                self._pass(job, passed)
        self.active = [job for job in self.active if self._left[job] > 0]
        self.now = now

    def _pass(self, job: int, ticks: float) -> None:
        paid = min(self._due[job], ticks)
        if self.options.overheads == "when started":
            self._due[job] -= paid
        self._left[job] -= (ticks - paid) * self.speed[job]

    def arrive(self, job: int, now: float) -> None:
        """Take in a job."""
        self._came.append(job)

    def serve(self) -> None:
        """Decide who runs from now on."""
        columns = self.columns
        columns.remaining_s = self._left / TICKS_PER_S
        columns.served_slot_s = self.ran * columns.slots / TICKS_PER_S
        before = [job for job in self.active if self.speed[job] > 0]
        speeds = self._rule.choose(self, self._came)
        self._came = []
        for job in before:
            if job not in speeds:
                self.speed[job] = 0.0
                self._preemptions += 1
        for job, speed in speeds.items():
            if self._started[job] < 0:
                self._started[job] = self.now
            if self.options.overheads == "at every event" or not self.speed[job]:
                pays = self.options.overheads != "none"
                self._due[job] = self._rule.overhead_of(self, job) if pays else 0.0
            self.speed[job] = speed
        self._running = [job for job in self.active if self.speed[job] > 0]
        running = np.array(self._running, np.int64)
        ends: Floats = np.ceil(self.now + self._left[running] / self.speed[running])
        if self.options.overheads == "when started":
            ends += self._due[running]
        self._ends = ends.tolist()
        self._events += 1

    def fitting(self, order: Iterable[int]) -> list[int]:
        """Place jobs in this order, skipping jobs that do not fit."""
        cluster = self.cluster()
        fitting: list[int] = []
        too_large = inf  # What wants as much as one that did not fit will not fit.
        for job in order:
            slots = self.slots[job]
            if slots >= too_large:
                continue
            if cluster.take(slots) is None:
                too_large = slots
            else:
                fitting.append(job)
                if cluster.free == 0:
                    break
        return fitting
