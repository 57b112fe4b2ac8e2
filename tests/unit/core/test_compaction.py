"""Compaction: what a crash may lose is left out."""

from tests.unit.core.builders import attempt, book_with, job, running

from shoal.core.durability.compaction import compacted
from shoal.core.durability.journal import (
    Entry,
    Incarnated,
    Judged,
    Revoked,
    TaskKept,
    decode,
    encode,
)
from shoal.core.scheduling.job_book import JobBook
from shoal.model.ids import NodeId, OwnerId, TaskId
from shoal.protocol.messages import Outcome, Revocation

T0, T1 = TaskId("j.g.0"), TaskId("j.g.1")


def kept(entries: list[Entry]) -> list[TaskKept]:
    return [entry for entry in entries if isinstance(entry, TaskKept)]


def test_a_crash_that_is_only_feared_is_left_out() -> None:
    book = book_with(job())
    run = running(book, T0, 1)
    run.move("lose", 1.0)
    run.move("blame", 1.0)
    book.tasks[T0].crashes = 3

    [task] = kept(compacted(book))

    assert task.crashes == 2


def test_a_task_that_was_never_tried_leaves_nothing() -> None:
    book = book_with(job(groups={"g": (2, ())}))
    running(book, T1, 1)

    assert [task.task for task in kept(compacted(book))] == [T1]


def test_a_gang_whose_member_succeeded_still_knows_where_all_of_it_runs() -> None:
    book = book_with(job(groups={"g": (2, ())}, gang_min=2))
    running(book, T0, 1)
    book.runs[attempt(1)].gang = (NodeId("v"), NodeId("w"))
    book.exit(running(book, T1, 2), Outcome("exited", exit_code=0))

    again = JobBook()
    for entry in compacted(book):
        again.replay(entry, 0.0, 0.0)

    assert again.runs[attempt(1)].gang == ("v", "w")
    assert list(again.group_of(T1).exited) == [T1]


def test_answers_and_standings_are_kept() -> None:
    book = book_with(job(groups={"g": (2, ())}))
    right = Outcome("exited", exit_code=0, digest="feed")
    book.answer(running(book, T0, 1), right)
    book.answer(running(book, T1, 2), right)
    book.finish(T1, "done", 1.0, attempt=attempt(2), outcome=right)
    book.judge(Judged(T1, OwnerId("ann"), NodeId("w"), "disagreed", 5.0))

    again = JobBook()
    for entry in compacted(book):
        again.replay(decode(encode(entry)[1]), 0.0, 0.0)

    assert again.tasks[T0].answers == book.tasks[T0].answers
    assert again.tasks[T1].answers == book.tasks[T1].answers
    assert again.answered == 2
    assert again.standings.kept() == book.standings.kept() != []


def test_revocations_that_stand_are_kept() -> None:
    void = Revocation(shoal="x", node=NodeId("n"), serial=3, signature=b"s")

    assert compacted(JobBook(), [void]) == [Incarnated(0), Revoked(void)]


def test_an_entry_is_the_same_after_it_was_bytes() -> None:
    entry = Incarnated(7)

    assert encode(entry)[0] == "incarnated"
    assert decode(encode(entry)[1]) == entry
