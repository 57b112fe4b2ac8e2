from shoal.net.direct.pairs import SILENT_AFTER_S, TICK_S, Heartbeat


def ticks(until_s: float, start_s: float = 0.0) -> list[float]:
    return [
        start_s + n * TICK_S for n in range(1, int((until_s - start_s) / TICK_S) + 1)
    ]


def test_a_new_link_is_measured_at_once() -> None:
    assert Heartbeat(now=7.0).due(now=7.0) == "ask"


def test_an_idle_link_is_asked_every_second() -> None:
    pulse = Heartbeat(now=0.0)
    asked: list[float] = []

    for now in ticks(until_s=5.0):
        if pulse.due(now) == "ask":
            asked.append(now)
            pulse.answer(pulse.ask(now), now + 0.01)
            pulse.hear(now + 0.01)

    assert asked == [0.5, 1.5, 2.5, 3.5, 4.5]


def test_a_busy_link_is_asked_every_ten_seconds() -> None:
    pulse = Heartbeat(now=0.0)
    asked: list[float] = []

    for now in ticks(until_s=25.0):
        pulse.hear(now)
        if pulse.due(now) == "ask":
            asked.append(now)
            pulse.answer(pulse.ask(now), now)

    assert asked == [0.5, 10.5, 20.5]


def test_a_question_without_answer_is_not_repeated_at_every_tick() -> None:
    pulse = Heartbeat(now=0.0)
    asked: list[float] = []

    for now in ticks(until_s=4.5):
        if pulse.due(now) == "ask":
            asked.append(now)
            pulse.ask(now)

    assert asked == [0.5, 1.5, 2.5, 3.5, 4.5]


def test_a_peer_that_stops_is_lost_three_to_six_seconds_later() -> None:
    for stopped_at in (3.0, 3.1, 3.49, 3.5, 3.51, 3.9):
        pulse = Heartbeat(now=0.0)
        lost_at = 0.0
        for now in ticks(until_s=20.0):
            if pulse.due(now) == "lost":
                lost_at = now
                break
            if pulse.due(now) == "ask":
                question = pulse.ask(now)
                if now < stopped_at:
                    pulse.answer(question, now)
                    pulse.hear(now)
        assert 3.0 <= lost_at - stopped_at <= 6.0


def test_a_round_trip_is_measured_by_its_own_answer_only() -> None:
    pulse = Heartbeat(now=0.0)
    first = pulse.ask(now=1.0)
    second = pulse.ask(now=3.0)

    assert pulse.answer(first, now=3.1) is None
    assert pulse.answer(b"forged", now=3.1) is None
    assert pulse.answer(second, now=3.25) == 0.25
    assert pulse.answer(second, now=3.5) is None


def test_our_own_standstill_is_no_fault_of_the_peer() -> None:
    pulse = Heartbeat(now=0.0)
    pulse.hear(now=1.0)

    pulse.excuse(late_s=60.0)

    assert pulse.due(now=61.5) == "ask"
    assert pulse.due(now=61.0 + SILENT_AFTER_S) == "lost"


def test_a_peer_whose_frame_takes_long_is_heard_by_its_bytes() -> None:
    pulse = Heartbeat(now=0.0)
    due = []

    for number, now in enumerate(ticks(until_s=4 * SILENT_AFTER_S)):
        pulse.look(1_000 * number, now)
        due.append(pulse.due(now, is_amid_frame=True))
        if due[-1] == "ask":
            pulse.ask(now)  # Its answer waits behind the frame.

    assert "lost" not in due
    assert due.count("ask") >= 15, "it hears of us all the while"


def test_a_peer_that_stops_amid_a_frame_is_lost_as_any_other() -> None:
    pulse = Heartbeat(now=0.0)
    pulse.look(1_000, 3.0)

    lost_at = 0.0
    for now in ticks(until_s=20.0, start_s=3.0):
        pulse.look(1_000, now)
        found = pulse.due(now, is_amid_frame=True)
        if found == "lost":
            lost_at = now
            break
        if found == "ask":
            pulse.ask(now)

    assert lost_at == 3.0 + SILENT_AFTER_S
