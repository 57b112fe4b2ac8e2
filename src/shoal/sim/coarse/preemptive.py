"""Jobs that are stopped and started again: who runs is decided at every event.

Times are whole microseconds, kept in floats, which hold them exactly: with seconds
in floats a job would come close to a level of service and never reach it.
"""

from __future__ import annotations

from math import ceil, inf
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, final

import msgspec
import numpy as np

from shoal.policy.braid import Braid, Candidate, Step
from shoal.policy.orders import Las, Order
from shoal.sim.coarse.columns import Floats, JobColumns
from shoal.sim.coarse.figures import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shoal.sim.coarse.rooms import Rooms
    from shoal.sim.traces.values import Job

TICKS_PER_S: Final = 1_000_000
REMAINING_MIN_S: Final = 1e-6

Overheads: TypeAlias = Literal["none", "when started", "at every event"]
Chooser: TypeAlias = Order | Braid


class PreemptiveOptions(msgspec.Struct, frozen=True):
    """How running jobs pay for being started, and how ties are broken.

    With "at every event" a running job loses its overhead whenever anything happens in
    the cluster, even if it is not moved: so it was done for Muri. With "when started"
    it pays when it starts or starts again. With `whole_seconds` levels of service are
    reached at whole seconds of running.
    """

    overheads: Overheads = "when started"
    whole_seconds: bool = False


@final
class PreemptiveReplay:
    """Replays jobs on GPUs that are given anew at each event, from an empty cluster."""

    def __init__(
        self,
        jobs: Sequence[Job],
        rooms: Callable[[], Rooms],
        chooser: Chooser,
        *,
        work_s: Sequence[float],
        overhead_s: Sequence[float],
        options: PreemptiveOptions,
    ) -> None:
        """Take jobs in the order in which they come; `rooms` makes an idle cluster.

        `work_s` is how long each job runs if it is never stopped.
        """
        self._rooms = rooms
        self._chooser = chooser
        self._options = options
        self._columns = JobColumns(jobs)
        self._submitted = np.round(self._columns.submitted_s * TICKS_PER_S)
        self._work = np.round(np.array(work_s, float) * TICKS_PER_S)
        self._left = self._work.copy()  # ticks that are left to run, at full speed
        self._overhead = np.round(np.array(overhead_s, float) * TICKS_PER_S)
        self._slots: list[int] = [job.slots for job in jobs]
        self._steps = [_step(job) for job in jobs]
        count = len(jobs)
        self._ran = np.zeros(count)  # ticks in which the job ran
        self._speed = np.zeros(count)  # 0: it does not run
        self._due = np.zeros(count)  # overhead to pay before it goes on
        self._started = np.full(count, -1.0)
        self._ended = np.zeros(count)
        self._active: list[int] = []  # in the order of the last decision
        self._level: Floats = np.zeros(count)
        self._next = 0
        self._now = 0.0
        self._events = self._preemptions = 0

    def run(self) -> Outcome:
        """Replay all jobs; return what became of them."""
        while self._next < len(self._slots) or self._active:
            at = self._next_event()
            came = self._take_in(at)
            self._decide(came)
            self._events += 1
        return Outcome(
            self._submitted / TICKS_PER_S,
            self._started / TICKS_PER_S,
            self._ended / TICKS_PER_S,
            self._work / TICKS_PER_S,
            self._columns.slots,
            self._rooms().slots,
            preemptions=self._preemptions,
            events=self._events,
        )

    # What happens.

    def _running(self) -> list[int]:
        return [job for job in self._active if self._speed[job] > 0]

    def _ends(self, running: Sequence[int]) -> Floats:
        """Return when jobs would end if nothing else happened."""
        chosen = np.array(running, np.int64)
        ends: Floats = np.ceil(self._now + self._left[chosen] / self._speed[chosen])
        if self._options.overheads == "when started":
            ends += self._due[chosen]
        return ends

    def _next_event(self) -> float:
        running = self._running()
        at = float(self._ends(running).min()) if running else inf
        if self._next < len(self._slots):
            at = min(at, float(self._submitted[self._next]))
        if isinstance(self._chooser, Las):
            at = min(at, self._next_sinking(running, self._chooser))
        assert at < inf, "a job is left that the cluster can never run"
        return max(at, self._now)

    def _next_sinking(self, running: Sequence[int], las: Las) -> float:
        """Return when the first running job reaches its next level of service."""
        first = inf
        for job in running:
            level = int(self._level[job])
            if level < len(las.levels_slot_s):
                reached_s = las.levels_slot_s[level] / self._slots[job]
                if self._options.whole_seconds:
                    reached_s = ceil(reached_s)
                ticks = ceil(reached_s * TICKS_PER_S) - float(self._ran[job])
                first = min(first, self._now + ticks)
        return first

    def _take_in(self, at: float) -> list[int]:
        """Let time pass until `at`; return the jobs that came then."""
        running = self._running()
        ends = self._ends(running) if running else np.zeros(0)
        for job, end in zip(running, ends.tolist(), strict=True):
            self._ran[job] += at - self._now
            if end <= at:
                self._ended[job] = at
                self._speed[job] = 0.0
                self._left[job] = 0.0
            else:
                self._pass(job, at - self._now)
        self._active = [job for job in self._active if self._left[job] > 0]
        self._now = at
        came: list[int] = []
        while self._next < len(self._slots) and self._submitted[self._next] <= at:
            came.append(self._next)
            self._next += 1
        return came

    def _pass(self, job: int, ticks: float) -> None:
        paid = min(self._due[job], ticks)
        if self._options.overheads == "when started":
            self._due[job] -= paid
        self._left[job] -= (ticks - paid) * self._speed[job]

    # Who runs from now on.

    def _decide(self, came: list[int]) -> None:
        columns = self._columns
        columns.remaining_s = self._left / TICKS_PER_S
        columns.served_slot_s = self._ran * columns.slots / TICKS_PER_S
        before = self._running()
        if isinstance(self._chooser, Braid):
            speeds = self._braided(came, self._chooser)
        else:
            speeds = dict.fromkeys(self._in_order(came, self._chooser), 1.0)
        for job in before:
            if job not in speeds:
                self._speed[job] = 0.0
                self._preemptions += 1
        for job, speed in speeds.items():
            if self._started[job] < 0:
                self._started[job] = self._now
            if self._options.overheads == "at every event" or not self._speed[job]:
                self._due[job] = self._overhead_of(job, speeds)
            self._speed[job] = speed
        if isinstance(self._chooser, Las):  # Who runs is first of its level.
            self._active.sort(key=lambda j: (self._level[j], self._speed[j] == 0.0))

    def _overhead_of(self, job: int, speeds: dict[int, float]) -> float:
        if self._options.overheads == "none":
            return 0.0
        if not isinstance(self._chooser, Braid):
            return float(self._overhead[job])
        return self._group_overhead[job]

    def _in_order(self, came: list[int], order: Order) -> list[int]:
        """Return who fits, in order. Of equal jobs the one that was first stays so."""
        if isinstance(order, Las):
            self._sink(came, order)
        else:
            self._active += came
        chosen = np.array(self._active, np.int64)
        if len(chosen) == 0:
            return []
        keys = order.key(self._columns.only(chosen), self._now / TICKS_PER_S)
        self._active = chosen[np.argsort(keys, kind="stable")].tolist()
        return self._fitting(self._active)

    def _fitting(self, order: Sequence[int]) -> list[int]:
        """Go through the jobs and place whoever fits, skipping who does not."""
        rooms = self._rooms()
        fitting: list[int] = []
        too_large = inf  # Who wants as much as one that did not fit will not fit.
        for job in order:
            slots = self._slots[job]
            if slots >= too_large:
                continue
            if rooms.take(slots) is None:
                too_large = slots
            else:
                fitting.append(job)
                if rooms.free == 0:
                    break
        return fitting

    def _sink(self, came: list[int], las: Las) -> None:
        """Put jobs that reached a level behind those that are there already."""
        active = np.array(sorted(self._active), np.int64)
        levels = las.key(self._columns.only(active), 0.0)
        sunk = active[levels > self._level[active]].tolist()
        self._level[active] = levels
        staying = [job for job in self._active if job not in dict.fromkeys(sunk)]
        self._active = [*staying, *sunk, *came]

    def _braided(self, came: list[int], braid: Braid) -> dict[int, float]:
        """Return the speeds of jobs that run, alone or sharing."""
        self._active += came
        left = self._columns.remaining_s * self._columns.slots
        self._active.sort(key=lambda job: left[job])
        alone = dict.fromkeys(self._fitting(self._active))
        waiting = [job for job in self._active if job not in alone]
        candidates = {job: self._candidate(job) for job in self._active}
        unmet = candidates[waiting[0]] if waiting else None
        rooms = self._rooms()
        groups = braid.select(
            candidates.values(), lambda gpus: rooms.take(gpus) is not None, unmet
        )
        speeds: dict[int, float] = {}
        self._group_overhead: dict[int, float] = {}
        for group in groups:
            overhead = sum(float(self._overhead[job]) for job in group.members)
            for job, speed in zip(group.members, group.speeds, strict=True):
                speeds[job] = speed
                self._group_overhead[job] = overhead
        return speeds

    def _candidate(self, job: int) -> Candidate:
        remaining_s = max(REMAINING_MIN_S, float(self._columns.remaining_s[job]))
        return Candidate(job, self._slots[job], remaining_s, self._steps[job])


def _step(job: Job) -> Step:
    """Return the step of a job; one of which nothing is known is all computing."""
    alone_s = job.step_ms / 1_000 if job.step_ms else 1.0
    load, compute, talk = job.stages_ms or (0.0, alone_s * 1_000, 0.0)
    return Step(alone_s, (load / 1_000, compute / 1_000, talk / 1_000))
