"""Which tasks deserve a second run."""

from tests.unit.core.builders import attempt, book_with, job, place, running

from shoal.core.dispatch.stragglers import SLOWER_S, stragglers
from shoal.core.scheduling.job_book import JobBook
from shoal.model.ids import GroupId, TaskId


def scene(done: int, size: int, done_s: float = 10.0) -> JobBook:
    """Return a book in which so many tasks are done and one runs since the start."""
    book = book_with(job(groups={"g": (size, ())}))
    for n in range(done):
        running(book, f"j.g.{n}", n + 1)
        book.finish(TaskId(f"j.g.{n}"), "done", done_s, attempt=attempt(n + 1))
    running(book, f"j.g.{done}", 99)
    return book


def found(book: JobBook, now: float) -> list[TaskId]:
    return stragglers(book, book.groups[GroupId("j.g")], now)


def test_a_task_that_takes_twice_the_median_is_a_straggler() -> None:
    book = scene(done=3, size=4)

    assert found(book, 20.0) == []
    assert found(book, 20.1) == ["j.g.3"]


def test_short_tasks_are_given_some_seconds() -> None:
    book = scene(done=3, size=4, done_s=0.1)

    assert found(book, 0.1 + SLOWER_S) == []
    assert found(book, 0.2 + SLOWER_S) == ["j.g.3"]


def test_nobody_is_late_before_half_of_the_group_is_done() -> None:
    assert found(scene(done=2, size=3), 99.0) == []
    assert found(scene(done=4, size=10), 99.0) == []


def test_nobody_runs_twice_while_others_wait() -> None:
    assert found(scene(done=3, size=5), 99.0) == []


def test_a_task_that_runs_twice_is_not_run_a_third_time() -> None:
    book = scene(done=3, size=4)
    book.want_second(TaskId("j.g.3"))
    book.assign((place("j.g.3", 100, "w2"),), 30.0)

    assert found(book, 99.0) == []


def test_a_task_that_has_not_started_is_no_straggler() -> None:
    book = scene(done=3, size=4)
    book.runs[attempt(99)].state = "sent"

    assert found(book, 99.0) == []
