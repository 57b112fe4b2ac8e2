"""The book of jobs: what follows from what."""

from tests.unit.core.builders import attempt, book_with, job, place, record, running

from shoal.core import jobs
from shoal.core.journal import Cancelled, Finished, Returned, Submitted
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

    assert book.groups[G].done_s == []


def test_the_oldest_ended_jobs_are_forgotten() -> None:
    book = jobs.JobBook()
    for n in range(jobs.ENDED_JOBS_MAX + 3):
        book.submit(Submitted(job(f"j{n}"), 0.0), 0.0)
        book.cancel(JobId(f"j{n}"), "", 0.0)

    assert len(book.jobs) == len(book.groups) == jobs.ENDED_JOBS_MAX
    assert JobId("j2") not in book.jobs
    assert JobId("j3") in book.jobs
