"""Priority, then fair share, then age."""

import pytest
from tests.unit.policy.pools import in_order, needs

from shoal.core.scheduling.policy_lookup import PolicyLookup
from shoal.errors import PolicyError
from shoal.model.ids import OwnerId
from shoal.policy.queueing.queue import (
    AGEING_S,
    HALF_LIFE_S,
    OWNERS_MAX,
    QueueEntry,
    TaskQueue,
    Usage,
    aged,
)
from shoal.policy.queueing.queue_orders import order_named

ANN, BOB = OwnerId("ann"), OwnerId("bob")


def entry(
    id_: str, owner: OwnerId = ANN, priority: int = 0, since: float = 0.0
) -> QueueEntry:
    return QueueEntry(id_, owner, priority, since)


def ids(entries: list[QueueEntry]) -> list[str]:
    return [each.id for each in entries]


def test_the_higher_priority_is_first() -> None:
    entries = [entry("low", priority=1), entry("high", priority=2, since=5.0)]

    assert ids(in_order(entries, Usage(), 10.0)) == ["high", "low"]


def test_of_equal_priority_the_owner_who_used_less_is_first() -> None:
    usage = Usage()
    usage.charge(ANN, needs(cpus=4), 60.0, 0.0)

    entries = [entry("a", ANN), entry("b", BOB, since=5.0)]

    assert ids(in_order(entries, usage, 10.0)) == ["b", "a"]


def test_of_equal_owners_the_oldest_is_first() -> None:
    entries = [entry("b", since=1.0), entry("c", since=0.0), entry("a", since=1.0)]

    assert ids(in_order(entries, Usage(), 10.0)) == ["c", "a", "b"]


def test_waiting_counts_as_priority() -> None:
    old = entry("old", priority=0)
    new = entry("new", priority=2, since=3 * AGEING_S)

    assert aged(old, 3 * AGEING_S) == 3
    assert ids(in_order([new, old], Usage(), 3 * AGEING_S)) == ["old", "new"]


def test_a_share_is_that_of_the_resource_used_most() -> None:
    usage = Usage(half_life_s=100.0)

    usage.charge(ANN, needs(cpus=8, count=1), 1.0, 0.0)
    usage.charge(BOB, needs(cpus=8), 1.0, 0.0)

    assert usage.share(ANN, 0.0) == pytest.approx(2 * usage.share(BOB, 0.0))


def test_who_has_all_of_the_pool_for_ever_has_a_share_of_one() -> None:
    usage = Usage(half_life_s=100.0)

    for second in range(5_000):
        usage.charge(ANN, needs(cpus=16), 1.0, float(second))

    assert usage.share(ANN, 5_000.0) == pytest.approx(1.0, rel=0.01)


def test_use_fades_by_half_in_a_half_life() -> None:
    usage = Usage()
    usage.charge(ANN, needs(cpus=4), 60.0, 0.0)

    before, after = usage.share(ANN, 0.0), usage.share(ANN, HALF_LIFE_S)

    assert after == pytest.approx(before / 2)


def test_who_used_nothing_has_no_share() -> None:
    assert Usage().share(ANN, 5.0) == 0.0


def test_the_owners_who_used_least_are_forgotten_when_there_are_too_many() -> None:
    usage = Usage()

    for number in range(OWNERS_MAX + 1):
        usage.charge(OwnerId(f"o{number}"), needs(cpus=1), 1.0 + number, 0.0)

    assert usage.share(OwnerId("o0"), 0.0) == 0.0
    assert usage.share(OwnerId(f"o{OWNERS_MAX}"), 0.0) > 0.0


def test_a_queue_holds_an_entry_until_it_is_removed() -> None:
    queue = TaskQueue()
    queue.put(entry("a"))
    queue.put(entry("b"))

    queue.remove("a")
    queue.remove("a")

    assert len(queue) == 1
    assert "a" not in queue
    assert queue.get("a") is None
    assert queue.get("b") == entry("b")


def test_an_entry_put_again_replaces_the_first() -> None:
    queue = TaskQueue()
    queue.put(entry("a", priority=1))

    queue.put(entry("a", priority=2, since=9.0))

    assert list(queue.ordered(Usage(), 10.0)) == [entry("a", priority=2, since=9.0)]


def test_with_an_order_short_tasks_pass_long_ones_of_the_same_priority() -> None:
    queue, usage = TaskQueue(order_named("sjf")), Usage()
    long = QueueEntry("long", OwnerId("ann"), 0, 0.0, time_limit_s=900.0)
    short = QueueEntry("short", OwnerId("ann"), 0, 1.0, time_limit_s=60.0)
    unknown = QueueEntry("unknown", OwnerId("ann"), 0, 0.0)
    urgent = QueueEntry("urgent", OwnerId("bob"), 5, 2.0, time_limit_s=9_000.0)
    for entry in (long, unknown, short, urgent):
        queue.put(entry)

    names = [entry.id for entry in queue.ordered(usage, 3.0)]

    assert names == ["urgent", "short", "long", "unknown"]
    queue.remove("short")
    assert [e.id for e in queue.ordered(usage, 3.0)] == ["urgent", "long", "unknown"]


def test_whatever_the_order_whoever_has_waited_an_hour_longer_is_first() -> None:
    queue, usage = TaskQueue(order_named("minnow")), Usage()
    queue.put(QueueEntry("old", ANN, 0, 0.0, time_limit_s=90_000.0))
    queue.put(QueueEntry("new", ANN, 0, AGEING_S, time_limit_s=1.0))
    queue.put(QueueEntry("other", BOB, 0, AGEING_S, time_limit_s=1.0))

    names = [entry.id for entry in queue.ordered(usage, AGEING_S + 1.0)]

    assert names == ["old", "new", "other"]


def test_an_order_that_changes_while_tasks_wait_is_not_for_a_live_queue() -> None:
    assert PolicyLookup(order="minnow").order is not None
    assert PolicyLookup().order is None
    for name in ("wfp3", "srtf", "nonsense"):
        with pytest.raises(PolicyError):
            PolicyLookup(order=name)
