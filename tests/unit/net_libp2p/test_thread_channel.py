from shoal.net.libp2p.thread.shared_state import ThreadChannel


def test_things_come_out_in_order() -> None:
    lane: ThreadChannel[int] = ThreadChannel(8)

    for number in range(5):
        lane.put(number)

    assert lane.take(3) == [0, 1, 2]
    assert lane.take(3) == [3, 4]


def test_what_finds_no_room_is_dropped_and_counted() -> None:
    lane: ThreadChannel[int] = ThreadChannel(2)

    accepted = [lane.put(number) for number in range(4)]

    assert accepted == [True, True, False, False]
    assert lane.dropped == 2
    assert lane.full


def test_the_receiver_is_woken_once_for_many_things() -> None:
    wakes: list[None] = []
    lane: ThreadChannel[int] = ThreadChannel(8)
    lane.attach(lambda: wakes.append(None))

    for number in range(5):
        lane.put(number)

    assert len(wakes) == 1


def test_the_receiver_is_woken_again_after_it_took_all() -> None:
    wakes: list[None] = []
    lane: ThreadChannel[int] = ThreadChannel(8)
    lane.attach(lambda: wakes.append(None))
    lane.put(1)

    lane.take(2)
    lane.put(2)

    assert len(wakes) == 2


def test_a_receiver_that_took_a_full_batch_is_not_woken_while_it_goes_on() -> None:
    wakes: list[None] = []
    lane: ThreadChannel[int] = ThreadChannel(8)
    lane.attach(lambda: wakes.append(None))
    lane.put(1)

    lane.take(1)
    lane.put(2)

    assert len(wakes) == 1
    assert lane.take(1) == [2]


def test_what_waited_for_a_receiver_wakes_it_when_it_comes() -> None:
    wakes: list[None] = []
    lane: ThreadChannel[int] = ThreadChannel(8)
    lane.put(1)

    lane.attach(lambda: wakes.append(None))

    assert len(wakes) == 1


def test_nobody_is_woken_after_the_receiver_left() -> None:
    wakes: list[None] = []
    lane: ThreadChannel[int] = ThreadChannel(8)
    lane.attach(lambda: wakes.append(None))
    lane.detach()

    lane.put(1)

    assert wakes == []
    assert len(lane) == 1
