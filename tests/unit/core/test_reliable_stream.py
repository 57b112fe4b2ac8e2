from tests.unit.core.builders import Batch

from shoal.core.calls.reliable_stream import (
    ACK_AFTER_S,
    BATCH_ITEMS,
    RESEND_S,
    WINDOW_BYTES,
    ReliableStream,
)


def test_what_is_put_goes_out_at_once_and_only_once() -> None:
    courier = ReliableStream(Batch)
    courier.put([b"a", b"b"])

    assert courier.due(0.0) == [Batch(0, 0, (b"a", b"b"))]
    assert courier.due(0.1) == []


def test_what_was_not_taken_is_said_again() -> None:
    courier = ReliableStream(Batch)
    courier.put([b"a", b"b"])
    courier.due(0.0)
    courier.receive(Batch(0, 1), 0.5)

    assert courier.next_deadline() == 0.5 + RESEND_S
    assert courier.due(0.5 + RESEND_S) == [Batch(1, 0, (b"b",))]


def test_a_new_link_is_reason_enough_to_say_it_again() -> None:
    courier = ReliableStream(Batch)
    courier.put([b"a"])
    courier.due(0.0)

    courier.hasten(0.1)

    assert courier.due(0.1) == [Batch(0, 0, (b"a",))]


def test_what_came_is_acknowledged_after_a_while() -> None:
    courier = ReliableStream(Batch)

    assert courier.receive(Batch(0, 0, (b"x",)), 0.0) == [b"x"]
    assert courier.due(0.0) == []
    assert courier.next_deadline() == ACK_AFTER_S
    assert courier.due(ACK_AFTER_S) == [Batch(0, 1)]


def test_a_gap_and_a_repeat_are_answered_at_once() -> None:
    courier = ReliableStream(Batch)

    assert courier.receive(Batch(3, 0, (b"x",)), 0.0) == []
    assert courier.due(0.0) == [Batch(0, 0)]
    courier.receive(Batch(0, 0, (b"x",)), 0.0)
    courier.due(1.0)
    assert courier.receive(Batch(0, 0, (b"x",)), 1.0) == []
    assert courier.due(1.0) == [Batch(0, 1)]


def test_nothing_new_goes_to_a_side_that_is_shut_and_it_is_asked() -> None:
    courier = ReliableStream(Batch)
    courier.receive(Batch(0, 0, (), False), 0.0)
    courier.put([b"a"])

    assert courier.due(0.0) == []
    assert courier.due(RESEND_S) == [Batch(0, 0, (), True, True)]
    courier.receive(Batch(0, 0, (), True), 2.0)
    assert courier.due(2.0) == [Batch(0, 0, (b"a",))]


def test_a_probe_is_answered_with_whether_there_is_room() -> None:
    courier = ReliableStream(Batch)
    courier.open = False
    courier.due(0.0)

    courier.receive(Batch(0, 0, (), True, True), 1.0)

    assert courier.due(1.0) == [Batch(0, 0, (), False, turn=1)]


def test_two_sides_that_are_slow_do_not_ask_each_other_without_end() -> None:
    here, there = ReliableStream(Batch), ReliableStream(Batch)
    for side, other in ((here, there), (there, here)):
        side.open = False
        [word] = side.due(0.0)
        other.receive(word, 0.0)
        side.put([b"a"])
    said = 0

    here.due(0.0)
    todo = here.due(RESEND_S)
    side, other = there, here
    while todo and said < 10:
        for batch in todo:
            side.receive(batch, RESEND_S)
        said += len(todo)
        todo, side, other = side.due(RESEND_S), other, side

    assert said == 2  # a question and its answer


def test_a_batch_that_was_overtaken_opens_no_side_that_has_closed() -> None:
    here, there = ReliableStream(Batch), ReliableStream(Batch)
    there.answer()
    [late] = there.due(0.0)
    there.open = False
    [closed] = there.due(0.1)

    here.receive(closed, 0.2)
    here.receive(late, 0.3)
    here.put([b"a"])
    assert here.due(0.4) == []

    there.open = True
    [opened] = there.due(0.5)
    here.receive(opened, 0.6)
    here.receive(closed, 0.7)
    assert here.due(0.8) == [Batch(0, 0, (b"a",))]


def test_no_more_is_on_its_way_than_the_window() -> None:
    courier = ReliableStream(Batch)
    courier.put([bytes(250_000)] * 40)

    sent = [item for batch in courier.due(0.0) for item in batch.items]

    assert sum(map(len, sent)) <= WINDOW_BYTES
    assert len(sent) == WINDOW_BYTES // 250_000


def test_a_batch_has_so_many_items_at_most() -> None:
    courier = ReliableStream(Batch)
    courier.put([b"x"] * (BATCH_ITEMS + 1))

    assert [len(batch.items) for batch in courier.due(0.0)] == [BATCH_ITEMS, 1]


def test_a_word_of_more_than_was_sent_is_nonsense() -> None:
    courier = ReliableStream(Batch)
    courier.put([b"a"])
    courier.due(0.0)

    courier.receive(Batch(0, 7), 0.1)

    assert courier.waiting == 1
