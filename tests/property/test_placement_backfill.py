"""Whatever runs and waits, a promise is never broken by those who pass."""

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.policy.pools import needs

from shoal.model.ids import NodeId
from shoal.model.resources import Allocation, Capacity, Device, Ledger
from shoal.policy.queueing.backfill import BackfillPlan, BackfillWish, Promise, Running

LIMITS = st.sampled_from([None, 1.0, 2.0, 3.0, 5.0])
DEVICES = (Device("0"), Device("1"))
WORKERS = {
    NodeId("a"): Capacity(4_000, devices=DEVICES),
    NodeId("b"): Capacity(2_000, devices=DEVICES[:1]),
    NodeId("c"): Capacity(3_000),
}
WISHES = st.lists(
    st.builds(
        lambda cpus, gpus, milli, count, limit: BackfillWish(
            needs(cpus=cpus, count=gpus, milli=milli if gpus == 1 else 1000),
            count,
            limit,
        ),
        st.integers(0, 3),
        st.integers(0, 2),
        st.sampled_from([300, 500, 1000]),
        st.integers(1, 3),
        LIMITS,
    ),
    max_size=6,
)
Interval = tuple[float, float, NodeId, Allocation]


def occupied(
    promise: Promise, wish: BackfillWish, since: float = 0.0
) -> list[Interval]:
    start = since + promise.starts_in_s
    end = start + (1e9 if wish.time_limit_s is None else wish.time_limit_s)
    return [(start, end, node, allocation) for node, allocation in promise.places]


def start_some(wishes: list[BackfillWish]) -> list[Interval]:
    """Let these start now, one after another, if there is room."""
    plan = BackfillPlan(WORKERS, [])
    made = [(plan._at(0.0, wish), wish) for wish in wishes]
    return [i for promise, wish in made if promise for i in occupied(promise, wish)]


def seen_at(intervals: list[Interval], now: float) -> list[Running]:
    return [
        Running(node, allocation, None if end >= 1e9 else end - now)
        for start, end, node, allocation in intervals
        if start <= now < end
    ]


@given(WISHES, WISHES)
def test_all_promises_fit_at_all_times(
    early: list[BackfillWish], queue: list[BackfillWish]
) -> None:
    intervals = start_some(early)
    plan = BackfillPlan(WORKERS, seen_at(intervals, 0.0))

    for wish in queue:
        if promise := plan.promise(wish):
            intervals += occupied(promise, wish)

    for at in {start for start, *_ in intervals}:
        ledgers = {node: Ledger(capacity) for node, capacity in WORKERS.items()}
        for start, end, node, allocation in intervals:
            if start <= at < end:
                ledgers[node].take(allocation)  # It asserts that this fits.


@given(WISHES, WISHES, st.integers(1, 4))
def test_nobody_starts_later_than_promised_whoever_passes(
    early: list[BackfillWish], queue: list[BackfillWish], later: int
) -> None:
    intervals = start_some(early)
    plan = BackfillPlan(WORKERS, seen_at(intervals, 0.0))
    promises = [(plan.promise(wish), wish) for wish in queue]
    waiting: list[tuple[float, BackfillWish]] = []
    for promise, wish in promises:
        if promise is not None and promise.starts_in_s == 0.0:
            intervals += occupied(promise, wish)
        elif promise is not None:
            waiting.append((promise.starts_in_s, wish))
    now = min([float(later), *(start for start, _ in waiting)])

    again = BackfillPlan(WORKERS, seen_at(intervals, now))

    for promised, wish in waiting:
        renewed = again.promise(wish)
        assert renewed is not None
        assert now + renewed.starts_in_s <= promised


@given(WISHES, WISHES)
def test_no_earlier_start_would_do(
    early: list[BackfillWish], queue: list[BackfillWish]
) -> None:
    running = seen_at(start_some(early), 0.0)
    plan, twin = BackfillPlan(WORKERS, running), BackfillPlan(WORKERS, running)

    for wish in queue:
        promise = plan.promise(wish)
        until = 40 if promise is None else round(2 * promise.starts_in_s)
        for half_seconds in range(until):
            assert twin._at(half_seconds / 2, wish) is None
        assert twin.promise(wish) == promise
