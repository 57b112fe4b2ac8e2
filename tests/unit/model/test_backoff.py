"""How pauses between tries grow."""

from random import Random

from shoal.model.backoff import Backoff


def test_pauses_grow_by_the_factor_up_to_the_longest() -> None:
    backoff = Backoff(0.5, 10.0, factor=3.0)

    assert [backoff.pause_s(n) for n in range(5)] == [0.5, 1.5, 4.5, 10.0, 10.0]


def test_very_many_tries_overflow_nothing() -> None:
    assert Backoff(1.0, 60.0, factor=4.0).pause_s(10**9) == 60.0


def test_fewer_than_no_tries_pause_as_the_first() -> None:
    assert Backoff(1.0, 60.0).pause_s(-1) == 1.0


def test_chance_spreads_pauses_within_the_bounds_and_repeats_with_its_seed() -> None:
    backoff = Backoff(2.0, 60.0, spread=(0.5, 1.0))

    first = [backoff.pause_s(1, Random(seed)) for seed in range(50)]
    again = [backoff.pause_s(1, Random(seed)) for seed in range(50)]

    assert first == again
    assert all(2.0 <= pause_s <= 4.0 for pause_s in first)
    assert len(set(first)) > 1
