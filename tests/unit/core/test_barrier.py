"""The barrier: effects wait for the records before them, and keep their order."""

from shoal.core.barrier import Barrier
from shoal.core.events import Answer
from shoal.model.ids import JobId


def answer(token: int) -> Answer:
    return Answer(token, JobId("j"))


def test_an_effect_passes_when_all_is_on_disk() -> None:
    barrier = Barrier(safe=7)

    assert not barrier.holds(answer(1))
    assert not barrier.up


def test_an_effect_waits_for_the_record_before_it() -> None:
    barrier = Barrier()
    barrier.rise(1)

    assert barrier.holds(answer(1))
    assert list(barrier.synced(1)) == [answer(1)]
    assert not barrier.holds(answer(2))


def test_an_effect_waits_for_no_record_after_it() -> None:
    barrier = Barrier()
    barrier.rise(1)
    barrier.holds(answer(1))
    barrier.rise(2)
    barrier.holds(answer(2))

    assert list(barrier.synced(1)) == [answer(1)]
    assert len(barrier) == 1
    assert barrier.up
    assert list(barrier.synced(2)) == [answer(2)]


def test_a_sync_that_is_told_late_changes_nothing() -> None:
    barrier = Barrier()
    barrier.rise(2)
    list(barrier.synced(2))

    assert list(barrier.synced(1)) == []
    assert not barrier.holds(answer(1))


def test_what_an_effect_brings_about_comes_after_those_already_waiting() -> None:
    barrier = Barrier()
    barrier.rise(1)
    barrier.holds(answer(1))
    barrier.holds(answer(2))

    performed: list[int] = []
    for effect in barrier.synced(1):
        assert isinstance(effect, Answer)
        performed.append(effect.token)
        if effect.token == 1:
            assert barrier.holds(answer(3))

    assert performed == [1, 2, 3]
