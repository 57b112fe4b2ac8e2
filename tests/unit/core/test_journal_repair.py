"""A job whose entries cannot be replayed is ended, and the others go on."""

import pytest

from shoal.core.durability.journal import (
    Assigned,
    AttemptPlace,
    Entry,
    Finished,
    Incarnated,
    Submitted,
)
from shoal.core.durability.journal_repair import active_of, weeded
from shoal.core.scheduling.job_book import JobBook
from shoal.model.ids import Attempt, GroupId, JobId, LeaseId, NodeId, OwnerId, TaskId
from shoal.model.job import Group, Job, Task

NODE = NodeId("otter")


def submitted(name: str) -> Submitted:
    task = Task(
        id=TaskId(f"{name}.main.0"), job=JobId(name), group=GroupId(f"{name}.main")
    )
    group = Group(id=GroupId(f"{name}.main"), tasks=(task,))
    job = Job(id=JobId(name), name=name, owner=OwnerId("ann"), groups=(group,))
    return Submitted(job, 1.0)


def replayed(entries: list[Entry]) -> JobBook:
    book = JobBook()
    for entry in entries:
        book.replay(entry, 0.0, 0.0)
    return book


def test_a_journal_that_is_sound_stays_as_it_is() -> None:
    entries: list[Entry] = [Incarnated(1), submitted("a"), submitted("b")]

    assert weeded(entries) == (entries, {})
    assert active_of(entries, [JobId("a"), JobId("nobody")]) == ["a"]


def test_a_job_with_an_impossible_entry_ends_and_says_why() -> None:
    bad = Finished(TaskId("a.main.7"), "done")  # There is no such task.
    entries: list[Entry] = [submitted("a"), submitted("b"), bad, Incarnated(2)]

    kept, why = weeded(entries)
    book = replayed(kept)

    assert list(why) == ["a"]
    assert "cannot be replayed" in why[JobId("a")]
    assert "shoal retry a" in why[JobId("a")]
    assert book.jobs[JobId("a")].state == "cancelled"
    assert book.jobs[JobId("b")].state == "active"
    assert book.generation == 2


def test_a_job_that_cannot_even_be_submitted_is_left_out() -> None:
    twice: list[Entry] = [submitted("a"), submitted("a"), submitted("b")]

    kept, why = weeded(twice)

    assert list(why) == ["a"]
    assert list(replayed(kept).jobs) == ["b"]


def test_an_impossible_entry_of_no_job_is_not_passed_over() -> None:
    place = AttemptPlace(TaskId("a.main.0"), Attempt(NODE, 1, 1), NODE, LeaseId("l"))
    sound: list[Entry] = [submitted("a"), Assigned((place,))]

    assert weeded(sound)[1] == {}
    with pytest.raises(TypeError):
        weeded([*sound, Incarnated(None)])  # type: ignore[arg-type]
