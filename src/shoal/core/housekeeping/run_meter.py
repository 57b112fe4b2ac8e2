"""Meters attempts: how long each ran, where, and for which owner.

An attempt counts from when its worker started it to when it is over, however it ends.
Those that go on are metered every `METER_S`, so that a crash loses little, and that a
week ends for long jobs, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from shoal.core.deadlines import DeadlineHeap, Deadlines
from shoal.core.events import Effect, Tell
from shoal.core.housekeeping.events import MeteredRun, RunsMetered
from shoal.core.timing import METER_S

if TYPE_CHECKING:
    from shoal.core.dispatch.run_states import EndedRun, TaskRun
    from shoal.core.scheduling.job_book import JobBook
    from shoal.model.job import Job, Task
    from shoal.model.resources import Profile


@final
class RunMeter:
    """Meters the runs of one book."""

    def __init__(self, book: JobBook, heap: DeadlineHeap) -> None:
        self._book = book
        self._due: Deadlines[str] = Deadlines(heap)

    def look(self, ended: list[EndedRun], now: float) -> list[Effect]:
        """Meter the runs that have ended; call it after each event."""
        if self._book.runs and "meter" not in self._due:
            self._due.set("meter", now + METER_S)
        return self._told([_metered(*each, now) for each in ended])

    def due(self, now: float) -> list[Effect]:
        """Meter the runs that go on, if it is time."""
        if not self._due.pop_due(now):
            return []
        book = self._book
        going = [run for run in book.runs.values() if run.has_begun]
        tasks = [book.tasks[run.task].task for run in going]
        return self._told(
            [
                _metered(run, task, book.jobs[task.job].job, now)
                for run, task in zip(going, tasks, strict=True)
            ]
        )

    def _told(self, runs: list[MeteredRun]) -> list[Effect]:
        spent = tuple(run for run in runs if run.spent_s > 0)
        return [Tell(RunsMetered(spent))] if spent else []


def _metered(run: TaskRun, task: Task, job: Job, now: float) -> MeteredRun:
    """Return what a run took since it was last metered."""
    assert run.metered_at is not None
    spent_s, run.metered_at = now - run.metered_at, now
    profile = task.profiles[run.profile]
    return MeteredRun(
        kind="used",
        owner=job.owner,
        node=run.worker,
        job=job.id,
        name=job.name,
        spent_s=max(0.0, spent_s),
        cpu_milli=run.allocation.cpu_milli or profile.cpu_milli,
        gpu_milli=sum(share.milli for share in run.allocation.shares)
        or _gpu_milli(profile),
    )


def _gpu_milli(profile: Profile) -> int:
    return profile.gpu.count * profile.gpu.milli if profile.gpu is not None else 0
