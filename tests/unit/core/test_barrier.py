"""The barrier: effects wait for the records before them, and keep their order."""

from tests.unit.core.builders import attempt, place

from shoal.core.calls.events import PauseLane
from shoal.core.channels.events import PauseChannel
from shoal.core.durability.barrier import Barrier
from shoal.core.durability.journal import Assigned, Incarnated
from shoal.core.events import Answer, StartTask
from shoal.model.ids import GroupId, JobId, LeaseId, TaskId
from shoal.model.job import Task
from shoal.model.resources import Allocation


def answer(token: int) -> Answer:
    return Answer(token, JobId("j"))


def start(sequence: int) -> StartTask:
    task = Task(id=TaskId("j.g.0"), job=JobId("j"), group=GroupId("j.g"))
    return StartTask(attempt(sequence), LeaseId("w/1/1"), task, Allocation())


def test_an_effect_passes_when_all_is_on_disk() -> None:
    barrier = Barrier(safe=7)

    assert not barrier.holds(answer(1))
    assert not barrier.up


def test_an_effect_waits_for_the_record_before_it() -> None:
    barrier = Barrier()
    barrier.rise(1, Incarnated(1))

    assert barrier.holds(answer(1))
    assert list(barrier.synced(1)) == [answer(1)]
    assert not barrier.holds(answer(2))


def test_who_shall_write_no_more_is_told_at_once() -> None:
    barrier = Barrier()
    barrier.rise(1, Incarnated(1))

    assert barrier.holds(answer(1))
    assert not barrier.holds(PauseChannel(1, paused=True))
    assert not barrier.holds(PauseLane(attempt(1), paused=True))
    assert len(barrier) == 1


def test_an_effect_waits_for_no_record_after_it() -> None:
    barrier = Barrier()
    barrier.rise(1, Incarnated(1))
    barrier.holds(answer(1))
    barrier.rise(2, Incarnated(2))
    barrier.holds(answer(2))

    assert list(barrier.synced(1)) == [answer(1)]
    assert len(barrier) == 1
    assert barrier.up
    assert list(barrier.synced(2)) == [answer(2)]


def test_a_sync_that_is_told_late_changes_nothing() -> None:
    barrier = Barrier()
    barrier.rise(2, Incarnated(2))
    list(barrier.synced(2))

    assert list(barrier.synced(1)) == []
    assert not barrier.holds(answer(1))


def test_what_an_effect_brings_about_comes_after_those_already_waiting() -> None:
    barrier = Barrier()
    barrier.rise(1, Incarnated(1))
    barrier.holds(answer(1))
    barrier.holds(answer(2))

    performed: list[int] = []
    for effect in barrier.synced(1):
        assert isinstance(effect, Answer)
        performed.append(effect.token)
        if effect.token == 1:
            assert barrier.holds(answer(3))

    assert performed == [1, 2, 3]


def test_a_start_waits_for_its_own_assignment_and_for_no_other_record() -> None:
    barrier = Barrier()
    barrier.rise(1, Assigned((place("j.g.0", 1), place("j.g.1", 2))))
    list(barrier.synced(1))
    barrier.rise(2, Incarnated(2))
    barrier.rise(3, Assigned((place("j.g.2", 3),)))
    barrier.holds(answer(1))

    assert not barrier.holds(start(1))
    assert not barrier.holds(start(2))
    assert not barrier.holds(start(9)), "another scheduler has assigned it"
    assert barrier.holds(start(3))
    assert list(barrier.synced(3)) == [answer(1), start(3)]


def test_a_start_passes_what_waits_for_a_later_record() -> None:
    barrier = Barrier()
    barrier.rise(1, Assigned((place("j.g.0", 1),)))
    barrier.rise(2, Incarnated(2))
    barrier.holds(answer(2))

    list(barrier.synced(1))

    assert not barrier.holds(start(1))
    assert barrier.holds(answer(3))
