"""Small tasks pass a waiting gang, but never at its expense."""

from tests.unit.policy.pools import capacity, gpus, needs

from shoal.model.ids import NodeId
from shoal.model.resources import Allocation
from shoal.policy.queueing.backfill import BackfillPlan, BackfillWish, Running

A, B = NodeId("a"), NodeId("b")
TWO = {A: capacity(4), B: capacity(4)}


def running(node: NodeId, cpus: int, ends_in_s: float | None) -> Running:
    return Running(node, Allocation(cpu_milli=cpus * 1000), ends_in_s)


def test_what_fits_now_starts_now() -> None:
    promise = BackfillPlan(TWO, []).promise(BackfillWish(needs(cpus=4), 2))

    assert promise is not None
    assert promise.starts_in_s == 0.0
    assert [node for node, _ in promise.places] == [A, B]


def test_a_gang_waits_for_all_of_its_workers() -> None:
    plan = BackfillPlan(TWO, [running(A, 2, 30.0), running(B, 1, 90.0)])

    promise = plan.promise(BackfillWish(needs(cpus=4), 2))

    assert promise is not None
    assert promise.starts_in_s == 90.0


def test_a_gang_that_waits_for_what_never_ends_gets_no_promise() -> None:
    plan = BackfillPlan(TWO, [running(A, 2, None)])

    assert plan.promise(BackfillWish(needs(cpus=4), 2)) is None


def test_a_short_task_passes_a_waiting_gang() -> None:
    plan = BackfillPlan(TWO, [running(A, 2, 30.0)])
    plan.promise(BackfillWish(needs(cpus=4), 2))

    promise = plan.promise(BackfillWish(needs(cpus=2), time_limit_s=30.0))

    assert promise is not None
    assert (promise.starts_in_s, promise.places[0][0]) == (0.0, A)


def test_a_task_that_would_delay_the_gang_does_not_start() -> None:
    plan = BackfillPlan(TWO, [running(A, 2, 30.0)])
    plan.promise(BackfillWish(needs(cpus=4), 2))

    limited = plan.promise(BackfillWish(needs(cpus=2), time_limit_s=31.0))
    endless = plan.promise(BackfillWish(needs(cpus=2)))

    assert limited is None or limited.starts_in_s > 0
    assert endless is None or endless.starts_in_s > 0


def test_a_long_task_passes_where_the_gang_leaves_room() -> None:
    plan = BackfillPlan(TWO, [running(A, 2, 30.0)])
    plan.promise(BackfillWish(needs(cpus=3), 2))

    promise = plan.promise(BackfillWish(needs(cpus=1)))

    assert promise is not None
    assert promise.starts_in_s == 0.0


def test_a_later_promise_goes_after_an_earlier_one() -> None:
    plan = BackfillPlan({A: capacity(4)}, [running(A, 2, 30.0)])
    plan.promise(BackfillWish(needs(cpus=4), time_limit_s=10.0))

    promise = plan.promise(BackfillWish(needs(cpus=3), time_limit_s=10.0))

    assert promise is not None
    assert promise.starts_in_s == 40.0


def test_a_device_that_is_promised_in_turns_is_not_free_in_between() -> None:
    plan = BackfillPlan({A: capacity(4, gpus(1))}, [])
    first = plan.promise(BackfillWish(needs(count=1), time_limit_s=10.0))
    second = plan.promise(BackfillWish(needs(count=1), time_limit_s=10.0))

    third = plan.promise(BackfillWish(needs(count=1), time_limit_s=10.0))

    starts = [p.starts_in_s for p in (first, second, third) if p is not None]
    assert starts == [0.0, 10.0, 20.0]
    assert plan.room(A, 0.0, 30.0).milli == {"0": 0}
    assert plan.room(A, 30.0, 40.0).milli == {"0": 1000}


def test_gpu_memory_is_promised_as_well() -> None:
    plan = BackfillPlan({A: capacity(4, gpus(1, gib=80))}, [])
    large = needs(count=1, milli=100, gib=60)
    plan.promise(BackfillWish(large, time_limit_s=10.0))

    promise = plan.promise(BackfillWish(large, time_limit_s=10.0))

    assert promise is not None
    assert promise.starts_in_s == 10.0
