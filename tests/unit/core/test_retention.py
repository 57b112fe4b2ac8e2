"""Ended jobs go by a rule, the oldest first, and nothing else goes."""

from shoal.core.deadlines import DeadlineHeap
from shoal.core.durability.compaction import compacted
from shoal.core.durability.journal import Entry, Removed, Submitted
from shoal.core.events import Answer, Effect, Record
from shoal.core.housekeeping.events import DropJob, JobMeasured, RemovalRequested
from shoal.core.housekeeping.retention import (
    FRESH_S,
    LOOK_S,
    PAUSE_S,
    REMOVALS_MAX,
    KeepRule,
    Retention,
)
from shoal.core.scheduling.job_book import JobBook
from shoal.model.ids import GroupId, JobId, OwnerId, TaskId
from shoal.model.job import Group, Job, Task

DAY_S = 86_400.0
WALL_S = 1e9
LATER_S = 2 * FRESH_S


def job(name: str) -> Job:
    group = GroupId(f"{name}.main")
    task = Task(id=TaskId(f"{group}.0"), job=JobId(name), group=group)
    groups = (Group(id=group, tasks=(task,)),)
    return Job(id=JobId(name), owner=OwnerId("ann"), groups=groups)


class Desk:
    """A book with retention, and the journal that it wrote."""

    def __init__(self, rule: KeepRule) -> None:
        self.book = JobBook(WALL_S)
        self.heap = DeadlineHeap()
        self.retention = Retention(self.book, rule, self.heap)
        self.journal: list[Entry] = []

    def submit(self, *names: str) -> None:
        for name in names:
            self.journal += self.book.submit(Submitted(job(name), WALL_S), 0.0)

    def end(self, name: str, now: float) -> None:
        self.journal += self.book.finish(TaskId(f"{name}.main.0"), "done", now)
        self.retention.look(now)

    def due(self, now: float) -> list[str]:
        """Return the jobs that are dropped, each after the record of its removal."""
        return self.dropped(self.retention.due(now))

    def dropped(self, effects: list[Effect]) -> list[str]:
        recorded: list[str] = []
        dropped: list[str] = []
        for effect in effects:
            match effect:
                case Record(entry=Removed() as entry):
                    self.journal.append(entry)
                    recorded += entry.jobs
                case DropJob():
                    assert effect.job.id in recorded
                    dropped.append(effect.job.id)
                case _:
                    pass
        assert sorted(recorded) == sorted(dropped)
        return dropped

    def replayed(self) -> list[JobId]:
        book = JobBook(WALL_S)
        for entry in self.journal:
            book.replay(entry, 0.0, WALL_S)
        again = JobBook(WALL_S)
        for entry in compacted(book):
            again.replay(entry, 0.0, WALL_S)
        assert list(again.jobs) == list(book.jobs)
        return list(book.jobs)


def test_beyond_a_number_the_jobs_that_ended_first_go() -> None:
    desk = Desk(KeepRule(jobs=2))
    desk.submit("a", "b", "c", "d", "runs")
    for now, name in enumerate(("c", "a", "d"), start=1):
        desk.end(name, float(now))

    assert desk.due(LATER_S) == ["c"]

    assert desk.due(LATER_S) == []
    assert desk.replayed() == ["a", "b", "d", "runs"]


def test_what_is_old_goes_in_its_time_and_not_before() -> None:
    desk = Desk(KeepRule(age_s=DAY_S))
    desk.submit("a", "b")
    desk.end("a", 10.0)
    assert desk.due(10.0) == []
    assert desk.heap.next() == 10.0 + LOOK_S

    desk.end("b", DAY_S / 2)
    assert desk.due(DAY_S + 9.0) == []
    assert desk.due(DAY_S + 11.0 + LOOK_S) == ["a"]


def test_what_ended_just_now_stays_for_those_who_wait_for_it() -> None:
    desk = Desk(KeepRule(jobs=0))
    desk.submit("a")
    desk.end("a", 10.0)

    assert desk.due(10.0 + FRESH_S - 1.0) == []
    assert desk.due(10.0 + FRESH_S + LOOK_S) == ["a"]


def test_beyond_a_size_the_oldest_go_until_the_rest_fits() -> None:
    desk = Desk(KeepRule(size_bytes=100))
    desk.submit("a", "b", "c", "runs")
    for now, name in enumerate("abc", start=1):
        desk.end(name, float(now))
    assert desk.due(3.0) == []

    for name, size in {"a": 10, "b": 80, "c": 60, "runs": 999}.items():
        desk.retention.on_event(JobMeasured(JobId(name), size), LATER_S)

    assert desk.due(LATER_S) == ["a", "b"]
    assert desk.replayed() == ["c", "runs"]


def test_a_turn_removes_only_so_many() -> None:
    desk = Desk(KeepRule(jobs=0))
    names = [f"j{n}" for n in range(REMOVALS_MAX + 7)]
    desk.submit(*names)
    for name in names:
        desk.end(name, 1.0)

    assert desk.due(LATER_S) == names[:REMOVALS_MAX]
    assert desk.due(LATER_S) == []
    assert desk.due(LATER_S + PAUSE_S) == names[REMOVALS_MAX:]


def test_a_user_removes_what_has_ended_and_nothing_else() -> None:
    desk = Desk(KeepRule())
    desk.submit("a", "runs")
    desk.end("a", 1.0)

    def ask(name: str) -> list[Effect]:
        return desk.retention.on_event(RemovalRequested(7, JobId(name)), 2.0)

    done = ask("a")
    assert desk.dropped(done) == ["a"]
    assert done[-1] == Answer(7, JobId("a"))
    assert ask("runs") == [
        Answer(7, JobId("runs"), refused="job runs has not ended"),
    ]
    assert ask("a") == [Answer(7, JobId("a"), refused="no job a here")]
    assert desk.replayed() == ["runs"]


def test_without_a_rule_nothing_is_looked_at() -> None:
    desk = Desk(KeepRule())
    desk.submit("a")
    desk.end("a", 1.0)

    assert desk.heap.next() is None
