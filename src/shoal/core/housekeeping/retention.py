"""Retention: which ended jobs are removed, and when.

Theory of operation. Ended jobs stay in the book, and their files on disk, until

    a user removes them, which `remove` checks: a job that has not ended stays;
    or they are more than a `KeepRule` allows: too old, too many, or too large.

The oldest end goes first, and no rule removes a job within `FRESH_S` of its end: who
waits for it must see it, and fetch what it left. A removal is one journal entry,
`Removed`, before the files go: a crash between the two leaves files of an unknown job,
which the next start sweeps away. What others need is not touched: blobs are held by
each job that uses them.

Work per turn is bounded: at most `REMOVALS_MAX` jobs, then a pause. Ages are by the
wall clock, which is believed: one that is set years ahead makes jobs old. Sizes are
what the host measured, 0 until then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.core.deadlines import DeadlineHeap, Deadlines
from shoal.core.events import Answer, Effect, Record
from shoal.core.housekeeping.events import (
    DropJob,
    JobMeasured,
    RemovalRequested,
)
from shoal.core.records.census import ended_wall_s

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.core.scheduling.job_book import JobBook
    from shoal.model.ids import JobId

REMOVALS_MAX: Final = 50
PAUSE_S: Final = 1.0
FRESH_S: Final = 600.0
LOOK_S: Final = 60.0
"""The wall clock may be set, so ages are looked at this often at least."""


class KeepRule(msgspec.Struct, frozen=True, kw_only=True):
    """How much of ended jobs is kept; None sets no limit."""

    age_s: float | None = None
    jobs: int | None = None
    size_bytes: int | None = None

    @property
    def limits(self) -> bool:
        """Whether there is any limit."""
        return self != KeepRule()


@final
class Retention:
    """Removes ended jobs of one book."""

    def __init__(self, book: JobBook, rule: KeepRule, heap: DeadlineHeap) -> None:
        self._book = book
        self._rule = rule
        self._due: Deadlines[str] = Deadlines(heap)
        self._sizes: dict[JobId, int] = {}  # of ended jobs in the book
        self._ends_seen = -1

    def on_event(
        self, event: RemovalRequested | JobMeasured, now: float
    ) -> list[Effect]:
        """Take in a fact about an ended job."""
        match event:
            case RemovalRequested():
                return self._on_request(event)
            case JobMeasured():
                return self._on_measured(event, now)

    def _on_request(self, event: RemovalRequested) -> list[Effect]:
        record = self._book.jobs.get(event.job)
        if record is None:
            return [Answer(event.token, event.job, refused=f"no job {event.job} here")]
        if record.state == "active":
            why = f"job {event.job} has not ended"
            return [Answer(event.token, event.job, refused=why)]
        return [*self._remove([event.job]), Answer(event.token, event.job)]

    def _on_measured(self, event: JobMeasured, now: float) -> list[Effect]:
        record = self._book.jobs.get(event.job)
        if record is not None and record.state != "active":
            self._sizes[event.job] = event.size_bytes
            self._look_soon(now)
        return []

    def look(self, now: float) -> None:
        """Look whether jobs ended since the last time; call it after each event."""
        if self._book.ends != self._ends_seen:
            self._ends_seen = self._book.ends
            self._look_soon(now)

    def due(self, now: float) -> list[Effect]:
        """Remove what is beyond the rule, if it is time to look."""
        if not self._due.pop_due(now):
            return []
        doomed, some_are_fresh = self._doomed(now)
        if len(doomed) > REMOVALS_MAX:
            self._due.set("look", now + PAUSE_S)
        elif some_are_fresh or self._rule.age_s is not None:
            self._due.set("look", now + LOOK_S)
        return self._remove(doomed[:REMOVALS_MAX])

    def _look_soon(self, now: float) -> None:
        if self._rule.limits:
            self._due.set_earlier("look", now)

    def _doomed(self, now: float) -> tuple[list[JobId], bool]:
        """Return the jobs beyond the rule, oldest end first.

        And whether there are more, which ended just now.
        """
        ended, rule = self._book.ended, self._rule
        excess = 0 if rule.jobs is None else max(0, len(ended) - rule.jobs)
        total = sum(self._sizes.values())
        wall_s = self._book.wall_s(now)
        doomed: list[JobId] = []
        some_are_fresh = False
        for place, job in enumerate(ended):
            age_s = wall_s - ended_wall_s(self._book, self._book.jobs[job].job)
            is_old = rule.age_s is not None and age_s > rule.age_s
            too_large = rule.size_bytes is not None and total > rule.size_bytes
            if not (place < excess or too_large or is_old):
                continue
            if age_s < FRESH_S or self._book.is_call_open(self._book.jobs[job]):
                some_are_fresh = True
            else:
                doomed.append(job)
                total -= self._sizes.get(job, 0)
        return doomed, some_are_fresh

    def _remove(self, jobs: Sequence[JobId]) -> list[Effect]:
        if not jobs:
            return []
        gone = [self._book.jobs[job].job for job in jobs]
        effects: list[Effect] = [*map(Record, self._book.remove(jobs))]
        for job in jobs:
            self._sizes.pop(job, None)
        return [*effects, *map(DropJob, gone)]
