"""Calls at the end of jobs: which are open, when they are tried, and for how long.

Theory of operation. A job may name a webhook or a command to be called once it has
ended. Such a call is *open* from the end of the job to the entry `EndCalled`; both are
in the journal, so that a restart finds what is open. An open call is

    due         it is tried as soon as fewer than `CALLS_MAX` are under way
    under way   `CallEnd` was asked for; the host answers by `EndCallEnded`
    resting     it failed, and is due after a pause that doubles

It is given up after `TRIES_MAX` tries, which is an `EndCalled` with the reason. Since
the entry comes after the call, a crash between the two repeats the call: it is made at
least once, with a key by which the receiver can tell. `CallEnd` follows the entry of
the job's end in the same answer or a later one, and thus never leaves before that is on
disk. A host that does not answer within `ANSWER_S` has failed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from shoal.core.deadlines import DeadlineHeap, Deadlines
from shoal.core.events import Effect, Record
from shoal.core.housekeeping.events import CallEnd, EndReport
from shoal.core.records import census

if TYPE_CHECKING:
    from shoal.core.housekeeping.events import EndCallEnded
    from shoal.core.records.records import JobRecord
    from shoal.core.scheduling.job_book import JobBook
    from shoal.model.ids import JobId

CALLS_MAX: Final = 4
TRIES_MAX: Final = 12
PAUSE_S: Final = 5.0
PAUSE_MAX_S: Final = 3_600.0
WAIT_S: Final = 1.0  # until the next look, while too many are under way
ANSWER_S: Final = 120.0


@final
class EndCalls:
    """Calls what the jobs of one book name."""

    def __init__(self, book: JobBook, heap: DeadlineHeap, now: float) -> None:
        """Begin with the calls that earlier lives left open."""
        self._book = book
        self._due: Deadlines[JobId] = Deadlines(heap)
        self._tries: dict[JobId, int] = {}  # of open calls that failed
        self._under_way: dict[JobId, None] = {}
        book.take_ended()
        for job in book.ended:
            self._open(job, now)

    def look(self, now: float) -> list[Effect]:
        """Open the calls of jobs that have just ended; call it after each event."""
        ended = self._book.take_ended()
        for job in ended:
            self._open(job, now)
        return self.due(now) if ended else []

    def due(self, now: float) -> list[Effect]:
        """Make the calls that are due, and give up waiting for hosts."""
        effects: list[Effect] = []
        for job in self._due.pop_due(now):
            if job in self._under_way:
                effects += self._failed(job, "nobody said how it went", now)
            elif not self._is_open(job):
                self._tries.pop(job, None)
            elif len(self._under_way) >= CALLS_MAX:
                self._due.set(job, now + WAIT_S)
            else:
                self._under_way[job] = None
                self._due.set(job, now + ANSWER_S)
                record = self._book.jobs[job]
                assert record.job.on_end is not None
                effects.append(CallEnd(record.job.on_end, self._report(record)))
        return effects

    def on_event(self, event: EndCallEnded, now: float) -> list[Effect]:
        """Take in how a call went."""
        if event.job not in self._under_way:
            return []  # It was waited for too long.
        if event.trouble:
            return self._failed(event.job, event.trouble, now)
        return self._close(event.job, "")

    def _open(self, job: JobId, now: float) -> None:
        if self._is_open(job):
            self._due.set(job, now)

    def _is_open(self, job: JobId) -> bool:
        record = self._book.jobs.get(job)
        return record is not None and self._book.is_call_open(record)

    def _failed(self, job: JobId, trouble: str, now: float) -> list[Effect]:
        tries = self._tries[job] = self._tries.get(job, 0) + 1
        if tries >= TRIES_MAX:
            return self._close(job, f"given up after {tries} tries: {trouble}")
        del self._under_way[job]
        pause_s = min(PAUSE_MAX_S, PAUSE_S * 2.0 ** (tries - 1))
        self._due.set(job, now + pause_s)
        return []

    def _close(self, job: JobId, trouble: str) -> list[Effect]:
        del self._under_way[job]
        self._due.drop(job)
        self._tries.pop(job, None)
        if not self._is_open(job):
            return []  # It was removed meanwhile.
        return [*map(Record, self._book.end_called(job, trouble))]

    def _report(self, record: JobRecord) -> EndReport:
        job, book = record.job, self._book
        states, told = census.counts_of(book, job), census.examples_of(book, job)
        codes = [each.outcome.exit_code for each in told if each.outcome is not None]
        bad = (code for code in codes if code)
        return EndReport(
            key=f"{job.id}.{record.number}",
            job=job.id,
            name=job.name,
            owner=job.owner,
            state=record.state,
            reason=record.reason
            or next((each.reason for each in told if each.reason), ""),
            exit_code=0 if record.state == "done" else next(bad, None),
            submitted_s=record.wall_s,
            ended_s=census.ended_wall_s(book, job),
            tasks={state: states[state] for state in sorted(states)},
        )
