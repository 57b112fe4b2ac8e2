"""Schedules: which run of a job that runs again and again is started, and when.

Theory of operation. A job with a schedule is accepted like any other, and never runs:
it is what its runs are made of. Of each schedule the book knows up to which time its
runs are *settled*: started, or skipped for a reason. The first one after that is next.
When its time has come by the wall clock,

    it is started as a job of its own, whose entry `Submitted` names schedule and time;
    or it is skipped, which is an entry `ScheduleMoved`: the last run has not ended, it
    was missed and missed ones do not count, or its submitter's grant was revoked.

Either is one entry, and settles all runs up to that time. Thus a crash loses neither
half of it, each time starts one job at most, and however many runs were missed while
the node was down or asleep, at most one is made up for: the latest.

The wall clock may be set at any time. Set forward, it is as if the node had been down.
Set back, nothing runs until it has caught up with what is settled: no time comes twice.
Time zones are rules from outside, passed in; a schedule whose zone is not known any
more rests. Bounded: at most `SCHEDULES_MAX` schedules, and `STARTS_MAX` starts a turn.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Final, final

from shoal.core.deadlines import DeadlineHeap, Deadlines
from shoal.core.durability.journal import Entry, Submitted
from shoal.core.events import Record
from shoal.core.scheduling.notices import Consequence, NeedChanged
from shoal.model.derive import again
from shoal.model.ids import JOB_ID_LENGTH_MAX, JobId
from shoal.model.job import Occurrence
from shoal.model.spec.schedules import ZoneLookup, latest_by, next_after

if TYPE_CHECKING:
    from shoal.core.membership.roster import Roster
    from shoal.core.records.records import JobRecord
    from shoal.core.scheduling.job_book import JobBook
    from shoal.model.job import Job

SCHEDULES_MAX: Final = 1_000
STARTS_MAX: Final = 20
PAUSE_S: Final = 1.0  # until the next look, if more are due than that
LATE_S: Final = 60.0  # a run that cannot start within this was missed
TOUCH_S: Final = 0.001  # clocks are added up: a deadline may be this early


@final
class Schedules:
    """Starts the runs of one book's schedules."""

    def __init__(
        self, book: JobBook, roster: Roster, zone: ZoneLookup, heap: DeadlineHeap
    ) -> None:
        self._book, self._roster, self._zone = book, roster, zone
        self._due: Deadlines[str] = Deadlines(heap)
        # The next run after what is settled, by the wall clock; None if there is none.
        self._next: dict[JobId, tuple[float, float | None]] = {}
        self._looked_at: tuple[int, float | None] = (0, None)

    def refusal(self, job: Job, now: float) -> str:
        """Say why a job cannot be run by its schedule, if so."""
        if job.schedule is None:
            return ""
        zone = self._zone(job.schedule.timezone)
        if zone is None:
            return f"there is no time zone '{job.schedule.timezone}' on this machine"
        if next_after(job.schedule, self._book.wall_s(now), zone) is None:
            return f"'{job.schedule.cron}' never comes"
        if len(self._book.schedules) >= SCHEDULES_MAX:
            return f"this node has {SCHEDULES_MAX} schedules, and takes no more"
        return ""

    def next_run(self, schedule: JobId) -> float | None:
        """Return when a schedule runs next, in seconds since 1970, if ever."""
        known = self._book.schedules.get(schedule)
        if known is None:
            return None
        settled_s, next_s = self._next.get(schedule, (-1.0, None))
        if settled_s != known.settled_s:
            wanted = self._book.jobs[schedule].job.schedule
            assert wanted is not None
            zone = self._zone(wanted.timezone)
            next_s = None
            if zone is not None:
                next_s = next_after(wanted, known.settled_s, zone)
            self._next[schedule] = (known.settled_s, next_s)
        return next_s

    def look(self, now: float) -> None:
        """Wait for what is next; call it after each event."""
        schedules = self._book.schedules
        state = (self._book.schedule_changes, self._book.wall_at_zero_s)
        if state == self._looked_at or not (schedules or self._next):
            return
        self._looked_at = state
        self._due.drop("start")
        for gone in [each for each in self._next if each not in schedules]:
            del self._next[gone]
        coming = [at for each in schedules if (at := self.next_run(each)) is not None]
        if coming:
            wait_s = min(coming) - self._book.wall_s(now)
            self._due.set("start", now + wait_s if wait_s > TOUCH_S else now + PAUSE_S)

    def due(self, now: float) -> list[Consequence]:
        """Start or skip the runs whose time has come."""
        if not self._due.pop_due(now):
            return []
        follows: list[Consequence] = []
        wall_s = self._book.wall_s(now) + TOUCH_S
        coming = [(self.next_run(each), each) for each in self._book.schedules]
        ready = [each for at, each in coming if at is not None and at <= wall_s]
        self._looked_at = (-1, None)
        for schedule in ready[:STARTS_MAX]:
            follows += self._settle(self._book.jobs[schedule], wall_s, now)
        return follows

    def _settle(
        self, record: JobRecord, wall_s: float, now: float
    ) -> list[Consequence]:
        """Start the latest run that is due, or say why it is skipped."""
        id_, wanted = record.job.id, record.job.schedule
        assert wanted is not None
        zone, due_s = self._zone(wanted.timezone), self.next_run(id_)
        assert zone is not None
        assert due_s is not None
        due_s = max(due_s, latest_by(wanted, wall_s, zone) or 0.0)
        if why := self._reason_to_skip(record, due_s, wall_s):
            return [*map(Record, self._book.skip_run(id_, due_s, why))]
        entries = self._start(record, due_s, now)
        groups = self._book.jobs[self._book.schedules[id_].last].job.groups
        return [*map(Record, entries), *(NeedChanged(group.id) for group in groups)]

    def _reason_to_skip(self, record: JobRecord, due_s: float, wall_s: float) -> str:
        wanted, known = record.job.schedule, self._book.schedules[record.job.id]
        assert wanted is not None
        if record.by and self._roster.revoked_up_to(record.by) >= record.serial:
            return "the grant of its submitter was revoked"
        if wanted.missed == "skip" and wall_s - due_s > LATE_S:
            return "it was missed: the node was down, or its clock was set"
        last = self._book.jobs.get(known.last)
        if wanted.overlap == "skip" and last is not None and last.state == "active":
            return f"{known.last} had not ended"
        return ""

    def _start(self, record: JobRecord, due_s: float, now: float) -> list[Entry]:
        job, known = record.job, self._book.schedules[record.job.id]
        names = ((n, _run_id(job.id, n)) for n in count(known.runs + 1))
        number, id_ = next(each for each in names if each[1] not in self._book.jobs)
        run = again(job, id_, occurrence=Occurrence(job.id, number, due_s))
        entry = Submitted(
            run,
            self._book.wall_s(now),
            record.quota_gpus,
            record.quota_cpu_milli,
            by=record.by,
            serial=record.serial,
        )
        return self._book.submit(entry, now)


def _run_id(schedule: JobId, number: int) -> JobId:
    ending = f"-{number}"
    return JobId(schedule[: JOB_ID_LENGTH_MAX - len(ending)] + ending)
