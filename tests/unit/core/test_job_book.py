"""The book of jobs: what follows from what."""

from tests.unit.core.builders import attempt, book_with, job, place, record, running

from shoal.core.durability.compaction import compacted
from shoal.core.durability.journal import (
    Assigned,
    Cancelled,
    Finished,
    Returned,
    Submitted,
)
from shoal.core.scheduling import job_book
from shoal.core.scheduling.job_book import JobBook
from shoal.model.ids import GroupId, JobId, TaskId

G, T0, T1 = GroupId("j.g"), TaskId("j.g.0"), TaskId("j.g.1")


def test_a_task_waits_runs_and_ends() -> None:
    book = book_with(job())
    assert list(book.groups[G].waiting) == [T0]

    running(book, T0, 1)
    assert record(book).state == "running"
    assert not book.groups[G].waiting

    book.finish(T0, "done", 1.0, attempt=attempt(1))
    assert book.jobs[JobId("j")].state == "done"
    assert not book.runs


def test_the_second_end_of_a_task_is_no_end() -> None:
    book = book_with(job())
    book.finish(T0, "done", 1.0)

    assert book.finish(T0, "failed", 2.0) == []
    assert record(book).state == "done"


def test_a_later_attempt_supersedes_the_earlier() -> None:
    book = book_with(job())
    running(book, T0, 1)

    entries = book.assign((place(T0, 2),), 1.0)

    assert isinstance(entries[0], Returned)
    assert list(book.runs) == [attempt(2)]


def test_the_second_run_of_a_straggler_supersedes_nothing() -> None:
    book = book_with(job())
    running(book, T0, 1)
    book.want_second(T0)

    book.assign((place(T0, 2),), 1.0)

    assert list(book.runs) == [attempt(1), attempt(2)]


def test_a_job_is_as_bad_as_its_worst_task() -> None:
    book = book_with(job(groups={"g": (2, ())}))
    book.finish(T0, "done", 1.0)
    book.finish(T1, "unknown", 1.0)

    assert book.jobs[JobId("j")].state == "unknown"


def test_a_group_is_unblocked_when_all_it_needs_is_done() -> None:
    book = book_with(job(groups={"a": (1, ()), "b": (1, ()), "c": (1, ("a", "b"))}))
    assert record(book, "j.c.0").state == "blocked"

    book.finish(TaskId("j.a.0"), "done", 1.0)
    assert record(book, "j.c.0").state == "blocked"

    book.finish(TaskId("j.b.0"), "done", 1.0)
    assert record(book, "j.c.0").state == "waiting"


def test_a_failure_cancels_all_that_depends_on_it() -> None:
    book = book_with(job(groups={"a": (1, ()), "b": (1, ("a",)), "c": (1, ("b",))}))

    entries = book.finish(TaskId("j.a.0"), "failed", 1.0)

    ends = [(e.task, e.state) for e in entries if isinstance(e, Finished)]
    assert ends == [
        ("j.a.0", "failed"),
        ("j.b.0", "cancelled"),
        ("j.c.0", "cancelled"),
    ]
    assert book.jobs[JobId("j")].state == "failed"


def test_cancelling_is_one_entry() -> None:
    book = book_with(job(groups={"g": (2, ())}))
    running(book, T0, 1)

    assert book.cancel(JobId("j"), "", 1.0) == [Cancelled(JobId("j"))]
    assert book.jobs[JobId("j")].state == "cancelled"
    assert not book.runs


def test_nothing_takes_time_in_a_replay() -> None:
    book = book_with(job())
    running(book, T0, 1)

    book.replay(Finished(T0, "done", attempt(1)), 0.0, 0.0)

    assert not book.groups[G].done_s


def test_the_oldest_ended_jobs_are_forgotten() -> None:
    book = job_book.JobBook()
    for n in range(job_book.ENDED_JOBS_MAX + 3):
        book.submit(Submitted(job(f"j{n}"), 0.0), 0.0)
        book.cancel(JobId(f"j{n}"), "", 0.0)

    assert len(book.jobs) == len(book.groups) == job_book.ENDED_JOBS_MAX
    assert JobId("j2") not in book.jobs
    assert JobId("j3") in book.jobs


def test_when_and_where_a_task_ran_is_known_after_a_restart() -> None:
    book = JobBook()
    book.wall_at_zero_s = 1_000.0
    made = job(groups={"a": (1, ()), "b": (1, ("a",))})
    entries = book.submit(Submitted(made, 1_001.0), 1.0)
    entries += book.assign((place("j.a.0", 1, "w1"),), 2.0)
    entries += book.put_back(book.runs[attempt(1)], "lost", crashed=True)
    entries += book.assign((place("j.a.0", 2, "w2"),), 5.0)
    entries += book.finish(TaskId("j.a.0"), "failed", 9.0, attempt=attempt(2))

    again = JobBook()
    for entry in entries:
        again.replay(entry, 50.0, 2_000.0)
    short = JobBook()
    for entry in compacted(again):
        short.replay(entry, 60.0, 3_000.0)

    for each in (book, again, short):
        ran, blocked = each.tasks[TaskId("j.a.0")], each.tasks[TaskId("j.b.0")]
        assert (ran.began_wall_s, ran.ended_wall_s) == (1_002.0, 1_009.0)
        assert ran.worker == "w2"
        assert (blocked.began_wall_s, blocked.ended_wall_s) == (0.0, 1_009.0)
        assert blocked.worker == ""


def test_a_journal_that_says_no_times_is_read_without_them() -> None:
    book = JobBook()
    book.wall_at_zero_s = 1_000.0
    book.replay(Submitted(job(), 1_001.0), 0.0, 2_000.0)
    book.replay(Assigned((place("j.g.0", 1),)), 0.0, 2_000.0)
    book.replay(Finished(T0, "done", attempt(1)), 0.0, 2_000.0)

    record = book.tasks[T0]
    assert (record.began_wall_s, record.ended_wall_s) == (0.0, 0.0)
    assert record.worker == "w"
