"""Unequal machines get steps by their speed, so that they finish together."""

from shoal.train.diloco.pace import SILENT_LEAST_S, Patience, StepPace


def test_a_slow_worker_gets_fewer_steps() -> None:
    pace = StepPace()
    pace.measured("fast", steps=60, seconds=2.0)
    pace.measured("slow", steps=20, seconds=2.0)

    assert pace.steps("fast", 60) == 60
    assert pace.steps("slow", 60) == 20
    assert pace.seconds("slow", 20) == pace.seconds("fast", 60)


def test_workers_that_are_nearly_equal_get_equal_steps() -> None:
    pace = StepPace()
    pace.measured("one", steps=50, seconds=5.0)
    pace.measured("other", steps=50, seconds=5.2)

    assert pace.steps("other", 50) == 50


def test_who_is_not_measured_yet_gets_as_many_as_the_fastest() -> None:
    pace = StepPace()
    pace.measured("one", steps=50, seconds=5.0)

    assert pace.steps("new", 50) == 50


def test_who_is_gone_sets_no_pace() -> None:
    pace = StepPace()
    pace.measured("fast", steps=100, seconds=1.0)
    pace.measured("slow", steps=10, seconds=1.0)

    pace.forget("fast")

    assert pace.steps("slow", 50) == 50


def test_everybody_gets_at_least_one_step() -> None:
    pace = StepPace()
    pace.measured("fast", steps=1_000, seconds=1.0)
    pace.measured("slow", steps=1, seconds=10.0)

    assert pace.steps("slow", 50) == 1


def test_a_single_slow_round_is_not_all_that_counts() -> None:
    pace = StepPace()
    pace.measured("one", steps=10, seconds=1.0)

    pace.measured("one", steps=10, seconds=10.0)

    assert 1.0 < pace.speeds["one"] < 10.0


def test_a_newcomer_does_what_fits_into_the_time_left_if_that_is_worth_it() -> None:
    pace = StepPace()
    assert pace.steps_within(100.0, most=50) == 0  # Nobody's speed is known.
    for worker, seconds in (("one", 5.0), ("other", 5.0), ("third", 50.0)):
        pace.measured(worker, steps=50, seconds=seconds)

    assert pace.steps_within(2.0, most=50) == 14
    assert pace.steps_within(100.0, most=50) == 50
    assert pace.steps_within(0.5, most=50) == 0
    assert pace.steps_within(-3.0, most=50) == 0
    pace.transferred("one", 1.0)
    assert pace.steps_within(2.0, most=50) == 7


def test_who_was_left_out_does_half_as_much_next_time() -> None:
    pace = StepPace()
    pace.measured("one", steps=50, seconds=5.0)
    pace.measured("other", steps=50, seconds=5.0)

    pace.missed("other")

    assert pace.steps("other", 50) == 25


def test_silent_is_who_is_not_heard_for_much_longer_than_usual() -> None:
    patience = Patience()
    for now in range(5):
        patience.heard("often", now)
    for now in (0, 4):
        patience.heard("seldom", now)

    assert patience.silent_at("often") == 4.0 + SILENT_LEAST_S
    assert patience.silent_at("seldom") == 4.0 + 3 * 4.0
    patience.listen(8.0)
    assert patience.is_silent("often")
    assert not patience.is_silent("seldom")
    patience.heard("often", 8.5)
    assert not patience.is_silent("often")


def test_grace_follows_how_late_a_worker_was_and_how_much_that_varied() -> None:
    steady, varying = Patience(), Patience()
    for late_s in (1.0, 1.0, 1.0, 1.0) * 5:
        steady.came("w", late_s, counts=True)
    for late_s in (0.0, 2.0, 0.0, 2.0) * 5:
        varying.came("w", late_s, counts=True)

    assert 11.0 < steady.limit({"w": 10.0}, most=60.0) < 12.0
    assert 13.0 < varying.limit({"w": 10.0}, most=60.0) < 18.0
    assert varying.limit({"w": 10.0, "unknown": 3.0}, most=60.0) == 60.0


def test_who_was_left_out_has_a_longer_grace_until_it_comes() -> None:
    patience = Patience()
    patience.came("w", 0.0, counts=True)
    before = patience.limit({"w": 10.0}, most=60.0)

    patience.missed("w")

    assert patience.limit({"w": 10.0}, most=60.0) - 10 == 4 * (before - 10)
    patience.came("w", 0.0, counts=True)
    assert patience.limit({"w": 10.0}, most=60.0) == before
