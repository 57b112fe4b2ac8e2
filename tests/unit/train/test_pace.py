"""Unequal machines get steps by their speed, so that they finish together."""

from shoal.train.diloco.pace import StepPace


def test_a_slow_worker_gets_fewer_steps() -> None:
    pace = StepPace()
    pace.measured("fast", steps=60, seconds=2.0)
    pace.measured("slow", steps=20, seconds=2.0)
    present = {"fast": 0, "slow": 0}

    assert pace.steps("fast", 60, present) == 60
    assert pace.steps("slow", 60, present) == 20
    assert pace.seconds("slow", 20) == pace.seconds("fast", 60)


def test_workers_that_are_nearly_equal_get_equal_steps() -> None:
    pace = StepPace()
    pace.measured("one", steps=50, seconds=5.0)
    pace.measured("other", steps=50, seconds=5.2)

    assert pace.steps("other", 50, {"one": 0, "other": 0}) == 50


def test_who_is_not_measured_yet_gets_as_many_as_the_fastest() -> None:
    pace = StepPace()
    pace.measured("one", steps=50, seconds=5.0)

    assert pace.steps("new", 50, {"one": 0, "new": 0}) == 50


def test_who_is_gone_sets_no_pace() -> None:
    pace = StepPace()
    pace.measured("fast", steps=100, seconds=1.0)
    pace.measured("slow", steps=10, seconds=1.0)

    assert pace.steps("slow", 50, {"slow": 0}) == 50


def test_everybody_gets_at_least_one_step() -> None:
    pace = StepPace()
    pace.measured("fast", steps=1_000, seconds=1.0)
    pace.measured("slow", steps=1, seconds=10.0)

    assert pace.steps("slow", 50, {"fast": 0, "slow": 0}) == 1


def test_a_single_slow_round_is_not_all_that_counts() -> None:
    pace = StepPace()
    pace.measured("one", steps=10, seconds=1.0)

    pace.measured("one", steps=10, seconds=10.0)

    assert 1.0 < pace.speeds["one"] < 10.0
