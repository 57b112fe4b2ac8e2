"""Whatever comes into the queue, nothing starves and lanes give the same order."""

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.policy.pools import in_order, needs

from shoal.model.ids import OwnerId
from shoal.model.job import PRIORITY_MAX, PRIORITY_MIN
from shoal.policy.queueing.queue import (
    AGEING_S,
    QueueEntry,
    TaskQueue,
    Usage,
)


def overtaken_within_s(priority: int) -> float:
    """Return how much later than an entry of `priority` others may come and pass it."""
    return (PRIORITY_MAX - priority + 1) * AGEING_S


OWNERS = st.sampled_from(["ann", "bob", "cy"]).map(OwnerId)
PRIORITIES = st.integers(PRIORITY_MIN, PRIORITY_MAX)
TIMES = st.integers(0, 500_000).map(float)
CHARGES = st.lists(st.tuples(OWNERS, st.integers(0, 100_000), TIMES), max_size=5)


def charged(charges: list[tuple[OwnerId, int, float]]) -> Usage:
    usage = Usage()
    for owner, seconds, now in sorted(charges, key=lambda charge: charge[2]):
        usage.charge(owner, needs(cpus=1), float(seconds), now)
    return usage


@given(
    CHARGES,
    st.tuples(OWNERS, PRIORITIES, TIMES),
    st.lists(st.tuples(OWNERS, PRIORITIES, st.integers(0, 10**6)), max_size=8),
    st.integers(0, 10**7),
)
def test_nobody_who_comes_after_the_bound_is_ever_ahead(
    charges: list[tuple[OwnerId, int, float]],
    first: tuple[OwnerId, int, float],
    others: list[tuple[OwnerId, int, int]],
    later_s: int,
) -> None:
    owner, priority, since = first
    waiting = QueueEntry("first", owner, priority, since)
    too_late = since + overtaken_within_s(priority)
    entries = [
        QueueEntry(f"o{n}", who, p, too_late + after)
        for n, (who, p, after) in enumerate(others)
    ]

    ordered = in_order([*entries, waiting], charged(charges), too_late + later_s)

    assert ordered[0] is waiting


@given(st.integers(PRIORITY_MIN, PRIORITY_MAX - 1), TIMES)
def test_two_steps_before_the_bound_the_highest_priority_still_overtakes(
    priority: int, since: float
) -> None:
    waiting = QueueEntry("first", OwnerId("ann"), priority, since)
    in_time = since + overtaken_within_s(priority) - 2 * AGEING_S
    rival = QueueEntry("rival", OwnerId("bob"), PRIORITY_MAX, in_time)

    ordered = in_order([waiting, rival], Usage(), in_time)

    assert ordered[0] is rival


ENTRIES = st.lists(
    st.tuples(OWNERS, st.integers(-1, 1), st.integers(0, 9).map(lambda n: 1_800.0 * n)),
    max_size=12,
)


@given(CHARGES, ENTRIES, st.sets(st.integers(0, 11)), st.integers(0, 9))
def test_a_queue_gives_the_order_of_a_full_sort(
    charges: list[tuple[OwnerId, int, float]],
    made: list[tuple[OwnerId, int, float]],
    removed: set[int],
    hours: int,
) -> None:
    entries = [QueueEntry(f"e{n}", *values) for n, values in enumerate(made)]
    usage, now = charged(charges), 3_600.0 * hours
    queue = TaskQueue()
    for entry in entries:
        queue.put(entry)
    for number in sorted(removed):
        queue.remove(f"e{number}")
    left = [entry for n, entry in enumerate(entries) if n not in removed]

    assert list(queue.ordered(usage, now)) == in_order(left, usage, now)
