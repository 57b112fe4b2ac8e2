"""Deadlines: one per key, the earliest first, none forgotten."""

from shoal.core.deadlines import DeadlineHeap, Deadlines


def test_keys_fall_due_in_the_order_of_their_times() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("late", 3.0)
    deadlines.set("early", 1.0)
    deadlines.set("middle", 2.0)

    assert deadlines.next() == 1.0
    assert deadlines.pop_due(2.0) == ["early", "middle"]
    assert deadlines.next() == 3.0


def test_the_last_time_set_for_a_key_counts() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("a", 1.0)
    deadlines.set("a", 5.0)

    assert deadlines.pop_due(4.0) == []
    assert deadlines.pop_due(5.0) == ["a"]
    assert deadlines.next() is None


def test_an_earlier_time_replaces_a_later_one_and_not_the_other_way_round() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set_earlier("a", 5.0)
    deadlines.set_earlier("a", 9.0)
    deadlines.set_earlier("a", 2.0)

    assert deadlines.next() == 2.0


def test_a_dropped_key_never_falls_due() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("a", 1.0)
    deadlines.drop("a")
    deadlines.drop("never there")

    assert deadlines.next() is None
    assert deadlines.pop_due(9.0) == []
    assert len(deadlines) == 0


def test_parts_that_share_a_heap_get_their_own_keys() -> None:
    heap = DeadlineHeap()
    ours: Deadlines[str] = Deadlines(heap)
    theirs: Deadlines[str] = Deadlines(heap)
    ours.set("same name", 1.0)
    theirs.set("same name", 2.0)

    assert heap.next() == 1.0
    assert ours.pop_due(2.0) == ["same name"]
    assert theirs.pop_due(2.0) == ["same name"]
    assert heap.next() is None


def test_what_another_part_sorted_out_stays_due_until_it_is_taken_out() -> None:
    heap = DeadlineHeap()
    ours: Deadlines[str] = Deadlines(heap)
    theirs: Deadlines[str] = Deadlines(heap)
    theirs.set("t", 1.0)
    ours.pop_due(2.0)

    assert heap.next() == 2.0
    theirs.set_earlier("t", 9.0)
    assert theirs.pop_due(2.0) == ["t"]
    assert heap.next() is None


def test_a_key_that_is_due_can_still_be_dropped() -> None:
    heap = DeadlineHeap()
    ours: Deadlines[str] = Deadlines(heap)
    theirs: Deadlines[str] = Deadlines(heap)
    theirs.set("t", 1.0)
    ours.pop_due(2.0)
    theirs.drop("t")

    assert theirs.pop_due(2.0) == []
    assert heap.next() is None


def test_the_heap_stays_small_however_often_a_key_is_set() -> None:
    heap = DeadlineHeap()
    deadlines: Deadlines[int] = Deadlines(heap)
    for n in range(5_000):
        deadlines.set(n % 3, float(n))

    assert len(heap.entries) <= 2 * 3 + 65
    assert deadlines.pop_due(5_000.0) == [2, 0, 1]


def test_keys_that_were_put_off_fall_due_in_the_order_they_were_set_last() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for key in ("a", "b", "c"):
        deadlines.set(key, 1.0)
    deadlines.set("a", 4.0)
    deadlines.set("b", 4.0)
    deadlines.set("a", 4.0)

    assert deadlines.next() == 1.0
    assert deadlines.pop_due(3.0) == ["c"]
    assert deadlines.next() == 4.0
    assert deadlines.pop_due(4.0) == ["b", "a"]


def test_a_key_that_was_put_off_can_be_set_earlier_again_and_dropped() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("a", 1.0)
    deadlines.set("a", 9.0)
    deadlines.set_earlier("a", 5.0)
    deadlines.set("b", 1.0)
    deadlines.set("b", 9.0)
    deadlines.drop("b")

    assert deadlines.next() == 5.0
    assert deadlines.pop_due(9.0) == ["a"]
    assert deadlines.next() is None


def test_putting_a_key_off_adds_nothing_to_the_heap() -> None:
    heap = DeadlineHeap()
    deadlines: Deadlines[str] = Deadlines(heap)
    for n in range(50):
        deadlines.set("a", float(n))

    assert len(heap.entries) == 1
