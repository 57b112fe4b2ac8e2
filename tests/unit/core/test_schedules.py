"""A schedule starts its runs one by one, across restarts and clocks that are set."""

from random import Random

import msgspec
import pytest
from tests.unit.core.builders import job

from shoal.core.durability.compaction import compacted
from shoal.core.durability.journal import Entry, ScheduleMoved, Submitted
from shoal.core.events import (
    Answer,
    Booted,
    CancelRequested,
    DeadlineReached,
    Effect,
    JobSubmitted,
    Record,
    WallClockRead,
)
from shoal.core.membership.roster import Roster
from shoal.core.scheduling.job_book import JobBook
from shoal.core.scheduling.scheduler import Scheduler
from shoal.core.scheduling.schedules import SCHEDULES_MAX
from shoal.model.ids import JobId, NodeId, OwnerId, TaskId
from shoal.model.job import Schedule
from shoal.protocol.messages import Grant
from shoal.sim.node import trust

S = NodeId("s")
ZERO_S = trust.WALL_AT_START_S - trust.WALL_AT_START_S % 3_600 + 3_600.0  # An hour.
HOUR_S = 3_600.0
HOURLY = Schedule("0 * * * *")


class Life:
    """A scheduler from a journal, whose clock began at `ZERO_S`."""

    def __init__(self, journal: list[Entry], now: float = 0.0) -> None:
        self.journal = journal
        self.now = now
        self.roster = Roster(trust.members(), ZERO_S)
        grant = trust.grant(S, ("scheduler",), OwnerId("ann"))
        self.roster.meet(S, grant, now)
        self.scheduler = Scheduler(
            S, self.roster, journal=journal, grant=grant, rng=Random(1), now=now
        )
        self._did(self.scheduler.handle(Booted(), now))

    def submit(
        self, schedule: Schedule, name: str = "n", grant: Grant | None = None
    ) -> str:
        made = msgspec.structs.replace(job(name), schedule=schedule)
        event = JobSubmitted(1, made, grant)
        effects = self._did(self.scheduler.handle(event, self.now))
        [answer] = [each for each in effects if isinstance(each, Answer)]
        return answer.refused

    def wait(self, until: float) -> list[JobId]:
        """Let time pass; return the jobs that were started."""
        before = list(self.book.jobs)
        while (due := self.scheduler.next_deadline()) is not None and due <= until:
            self.now = max(self.now, due)
            self._did(self.scheduler.handle(DeadlineReached(), self.now))
        self.now = until
        return [each for each in self.book.jobs if each not in before]

    def set_wall(self, wall_s: float) -> None:
        self.roster.read_wall(wall_s, self.now)
        self._did(self.scheduler.handle(WallClockRead(wall_s), self.now))

    def end(self, name: str) -> None:
        task = TaskId(f"{name}.g.0")
        self.journal += self.book.finish(task, "done", self.now)

    @property
    def book(self) -> JobBook:
        return self.scheduler.book

    def _did(self, effects: list[Effect]) -> list[Effect]:
        self.journal += [each.entry for each in effects if isinstance(each, Record)]
        return effects


def test_each_hour_starts_one_job_with_the_tasks_of_the_schedule() -> None:
    life = Life([])
    assert life.submit(HOURLY) == ""

    assert life.wait(HOUR_S - 1) == []
    assert life.wait(HOUR_S + 1) == ["n-1"]
    life.end("n-1")
    assert life.wait(3 * HOUR_S - 1) == ["n-2"]

    run = life.book.jobs[JobId("n-2")].job
    assert run.schedule is None
    assert run.occurrence is not None
    assert run.occurrence.due_s == ZERO_S + 2 * HOUR_S
    assert [task.id for task in run.tasks()] == ["n-2.g.0"]
    assert life.book.tasks[TaskId("n.g.0")].state == "blocked"
    assert life.scheduler.schedules.next_run(JobId("n")) == ZERO_S + 3 * HOUR_S


@pytest.mark.parametrize("short", [False, True])
def test_a_restart_makes_up_for_the_latest_missed_run_and_for_no_other(
    short: bool,
) -> None:
    life = Life([])
    life.submit(HOURLY, "late")
    life.submit(Schedule("0 * * * *", missed="skip"), "exact")
    life.wait(HOUR_S + 1)
    life.end("late-1")
    life.end("exact-1")
    journal = compacted(life.book) if short else life.journal

    again = Life(list(journal), 5.5 * HOUR_S)

    assert again.wait(5.6 * HOUR_S) == ["late-2"]
    run = again.book.jobs[JobId("late-2")].job.occurrence
    assert run is not None
    assert run.due_s == ZERO_S + 5 * HOUR_S
    skipped = again.book.schedules[JobId("exact")]
    assert skipped.settled_s == ZERO_S + 5 * HOUR_S
    assert skipped.skipped.startswith("it was missed")
    again.end("late-2")
    assert again.wait(6.1 * HOUR_S) == ["late-3", "exact-2"]


def test_a_run_is_skipped_while_the_last_one_goes_on_unless_it_may_overlap() -> None:
    life = Life([])
    life.submit(HOURLY, "one")
    life.submit(Schedule("0 * * * *", overlap="allow"), "many")
    life.wait(HOUR_S + 1)

    assert life.wait(2 * HOUR_S + 1) == ["many-2"]
    assert life.book.schedules[JobId("one")].skipped == "one-1 had not ended"
    assert isinstance(life.journal[-1], ScheduleMoved | Submitted)

    life.end("one-1")
    assert life.wait(3 * HOUR_S + 1) == ["one-2", "many-3"]


def test_a_clock_that_is_set_back_repeats_no_run_and_one_set_ahead_makes_one() -> None:
    life = Life([])
    life.submit(HOURLY)
    life.wait(HOUR_S + 10)
    life.end("n-1")

    life.set_wall(ZERO_S + 0.5 * HOUR_S)
    assert life.wait(life.now + HOUR_S) == []  # 09:00 came twice, and ran once.
    life.set_wall(ZERO_S + 9.5 * HOUR_S)
    assert life.wait(life.now + 60) == ["n-2"]


def test_a_cancelled_schedule_starts_nothing_and_its_run_goes_on() -> None:
    life = Life([])
    life.submit(HOURLY)
    life.wait(HOUR_S + 1)

    life.scheduler.handle(CancelRequested(2, JobId("n"), "enough"), life.now)

    assert life.wait(5 * HOUR_S) == []
    assert life.book.jobs[JobId("n")].state == "cancelled"
    assert life.book.jobs[JobId("n-1")].state == "active"
    assert not life.book.schedules


def test_a_schedule_of_a_revoked_member_starts_nothing_more() -> None:
    life = Life([])
    eve = trust.grant(NodeId("eve"), ("scheduler",), OwnerId("eve"), serial=7)
    assert life.submit(HOURLY, grant=eve) == ""
    assert life.wait(HOUR_S + 1) == ["n-1"]
    life.end("n-1")
    life.roster.revoke(trust.revocation(NodeId("eve"), 7))

    assert life.wait(2 * HOUR_S + 1) == []
    assert "revoked" in life.book.schedules[JobId("n")].skipped


def test_what_cannot_be_scheduled_is_refused_with_a_reason() -> None:
    life = Life([])

    assert "Mars/Base" in life.submit(Schedule("0 3 * * *", "Mars/Base"))
    for n in range(SCHEDULES_MAX):
        assert life.submit(HOURLY, f"j{n}") == ""
    assert f"{SCHEDULES_MAX} schedules" in life.submit(HOURLY, "more")


def test_an_id_that_is_taken_is_not_taken_again() -> None:
    life = Life([])
    life.submit(HOURLY)
    life.scheduler.handle(JobSubmitted(5, job("n-1")), 0.0)

    assert life.wait(HOUR_S + 1) == ["n-2"]
