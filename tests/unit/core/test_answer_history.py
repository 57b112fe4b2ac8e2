"""What is said of verified tasks and of those who answered."""

import msgspec
from tests.unit.core.builders import book_with, job, place, record

from shoal.core.durability.journal import AttemptPlace, Judged
from shoal.core.scheduling.job_book import JobBook
from shoal.core.verification.answer_history import (
    answers_of,
    standing_of,
    trust_text,
    what_is_missing,
)
from shoal.core.verification.standings import Standings
from shoal.model.ids import GroupId, NodeId, OwnerId, TaskId
from shoal.model.job import Verify
from shoal.protocol.messages import Outcome

TASK = TaskId("j.g.0")
RIGHT = Outcome("exited", exit_code=0, digest="feedbeef00")
WRONG = Outcome("exited", exit_code=0, digest="badbadbad0")
FAILED = Outcome("exited", exit_code=1)
EMPTY = Outcome("exited", exit_code=0)


def answered(*outcomes: Outcome) -> JobBook:
    plain = job()
    group = msgspec.structs.replace(plain.groups[0], verify=Verify(copies=2))
    book = book_with(msgspec.structs.replace(plain, groups=(group,)))
    for number, outcome in enumerate(outcomes, 1):
        at = place(TASK, number, f"w{number}")
        owned = AttemptPlace(
            at.task, at.attempt, at.worker, at.lease, 0, OwnerId(f"o{number}")
        )
        book.assign((owned,), 0.0)
        book.answer(book.runs[at.attempt], outcome)
    return book


def missing(book: JobBook) -> list[str]:
    return what_is_missing(record(book), book.groups[GroupId("j.g")])


def test_before_the_end_it_says_what_each_gave() -> None:
    assert answers_of(record(answered(RIGHT, FAILED, EMPTY))) == [
        ("w1", "result feedbeef"),
        ("w2", "exit code 1"),
        ("w3", "nothing to compare"),
    ]


def test_after_the_end_it_says_who_was_right() -> None:
    book = answered(RIGHT, WRONG, FAILED, EMPTY, RIGHT)
    first = record(book).answers[0]
    book.finish(TASK, "done", 1.0, attempt=first.attempt, outcome=first.outcome)

    assert answers_of(record(book)) == [
        ("w1", "agreed"),
        ("w2", "disagreed"),
        ("w3", "failed: exit code 1"),
        ("w4", "disagreed: nothing to compare"),
        ("w5", "agreed"),
    ]
    assert record(book).worker == "w1"
    assert missing(book) == []


def test_one_answer_that_was_accepted_is_said_to_be_believed() -> None:
    book = answered(RIGHT)
    first = record(book).answers[0]
    book.finish(TASK, "done", 1.0, attempt=first.attempt, outcome=first.outcome)

    assert answers_of(record(book)) == [("w1", "believed")]


def test_it_says_what_a_task_waits_for() -> None:
    book = answered()
    assert missing(book) == ["2 results of different owners must agree"]

    held = answered(RIGHT)
    held.stop_waiting(TASK)
    assert missing(held) == [
        "its one result is held until a later one of its owner was compared"
    ]

    asked = answered(RIGHT)
    asked.wait_again(TASK)
    assert missing(asked) == [
        "1 of at most 8 results came; 2 must agree, so other owners are asked"
    ]


def test_how_a_worker_stands_is_said_in_few_words() -> None:
    standings, worker = Standings(), NodeId("w")
    assert standing_of(standings, worker, 0.0) is None
    standings.take(Judged(TASK, OwnerId("ann"), worker, "agreed"))
    standings.take(Judged(TASK, OwnerId("ann"), worker, "disagreed"))

    assert standing_of(standings, worker, 0.0) == ("shunned", 2, 1)
    assert trust_text("shunned", 2, 1) == "1 disagreed of 2"
    assert trust_text("unknown", 3, 0) == "3 agreed, trusted at 20"
    assert trust_text("trusted", 30, 0) == "trusted, all 30 agreed"
