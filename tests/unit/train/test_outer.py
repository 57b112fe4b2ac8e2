"""Deltas are averaged by samples, and the outer step is that of DiLoCo."""

import numpy as np
import pytest

from shoal.train.diloco import outer
from shoal.train.diloco.compression import Array
from shoal.train.settings import settings_of


def array(*values: float) -> Array:
    return np.array(values, dtype=np.float32)


def take(
    rule: outer.Outer,
    gradient: Array,
    momentum: Array,
    rounds_done: int = 0,
    workers: float = 1.0,
) -> tuple[Array, Array]:
    return outer.step(
        rule, gradient, momentum, rounds_done=rounds_done, workers=workers
    )


def test_three_workers_are_averaged_as_three_and_not_in_pairs() -> None:
    parts = [(array(3), 1), (array(6), 1), (array(0), 1)]

    mean = outer.weighted_mean(parts)

    pairwise = ((3 + 6) / 2 + 0) / 2
    assert mean == array(3)
    assert mean != array(pairwise)


def test_who_processed_more_samples_counts_more() -> None:
    parts = [(array(1, 0), 300), (array(5, 4), 100)]

    mean = outer.weighted_mean(parts)

    np.testing.assert_array_equal(mean, array(2, 1))


def test_who_processed_nothing_counts_nothing() -> None:
    assert outer.weighted_mean([(array(7), 10), (array(99), 0)]) == array(7)


def test_the_mean_does_not_depend_on_the_order_of_workers() -> None:
    rng = np.random.default_rng(1)
    parts = [
        (rng.normal(size=1000).astype(np.float32), int(rng.integers(1, 99)))
        for _ in range(5)
    ]

    forth, back = outer.weighted_mean(parts), outer.weighted_mean(parts[::-1])

    np.testing.assert_allclose(forth, back, rtol=1e-6, atol=1e-7)


def test_sgd_of_rate_one_takes_over_what_the_worker_has() -> None:
    shared, own = array(1.0, -2.0, 0.5), array(1.1, -1.9, 0.45)

    rule = outer.Outer(kind="sgd", rate=1.0)
    add, _ = take(rule, shared - own, array(0, 0, 0))

    np.testing.assert_array_equal(shared + add, own)


def test_nesterov_looks_ahead_along_its_momentum() -> None:
    rule = outer.Outer(rate=0.5, momentum=0.9)
    momentum = array(0)

    first, momentum = take(rule, array(1), momentum)
    second, momentum = take(rule, array(1), momentum)

    np.testing.assert_allclose(first, [-0.5 * (1 + 0.9)], rtol=1e-6)
    np.testing.assert_allclose(momentum, [1.9], rtol=1e-6)
    np.testing.assert_allclose(second, [-0.5 * (1 + 0.9 * 1.9)], rtol=1e-6)


def test_the_first_step_is_the_mean_delta_and_momentum_takes_over() -> None:
    rule = outer.Outer()

    steps = [rule.at(done, workers=8) for done in range(20)]

    rates, rising = [rate for rate, _ in steps], [momentum for _, momentum in steps]
    assert steps[0] == (1.0, 0.0)
    np.testing.assert_allclose(rising[:5], [0, 1 / 4, 2 / 5, 3 / 6, 4 / 7])
    assert rates == sorted(rates, reverse=True)
    np.testing.assert_allclose(steps[-1], (0.7, 1 - 0.7 / 4))


@pytest.mark.parametrize("workers", [1, 2, 4, 8])
def test_steady_deltas_are_stretched_by_a_power_of_the_workers(workers: int) -> None:
    rule = outer.Outer()
    update = momentum = array(0)

    for done in range(200):
        update, momentum = take(rule, array(1), momentum, done, workers)

    np.testing.assert_allclose(-update, [workers ** (2 / 3)], rtol=1e-5)


def test_a_delta_of_the_first_round_is_soon_forgotten() -> None:
    update = momentum = array(0)

    for done in range(20):
        gradient = array(1.0 if done == 0 else 0.0)
        update, momentum = take(outer.Outer(), gradient, momentum, done, workers=8)

    assert abs(update) < 0.002


@pytest.mark.parametrize("rounds", [20, 200])
def test_in_the_last_tenth_of_a_run_the_rate_falls(rounds: int) -> None:
    rule, tail = outer.Outer(rounds=rounds), rounds // 10
    steady, _ = rule.at(rounds - tail, workers=4)

    left = [rule.at(done, workers=4)[0] / steady for done in range(rounds + 5)]

    assert min(left[: rounds - tail + 1]) == 1.0
    assert left[rounds - 1] == pytest.approx(max(0.1, 1 / tail))
    assert min(left) >= 0.1 - 1e-9, "a run that is resumed beyond its end goes on"


def lengths(rounds: int, workers: int = 8) -> list[float]:
    """Return how many mean deltas each step of a run is, but for its end."""
    rule = outer.Outer(rounds=rounds)
    steps = [rule.at(done, workers) for done in range(rounds - rounds // 10)]
    return [rate / (1 - momentum) for rate, momentum in steps]


@pytest.mark.parametrize("workers", [2, 4, 8])
@pytest.mark.parametrize("rounds", [20, 40, 80])
def test_a_short_run_goes_as_far_as_a_long_one(rounds: int, workers: int) -> None:
    short, long = lengths(rounds, workers), lengths(900, workers)

    assert np.mean(short) == pytest.approx(np.mean(long), rel=0.08)
    assert max(short) < 1.3 * max(long)
    assert short[:9] == sorted(short[:9])


@pytest.mark.parametrize("workers", [8, 64])
def test_in_a_short_run_momentum_remembers_but_a_part_of_it(workers: int) -> None:
    rule = outer.Outer(rounds=20)

    steps = [rule.at(done, workers) for done in range(20)]

    assert max(momentum for _, momentum in steps) <= 1 - 1 / (1 + 20 / 3)
    assert all(rate == 1.0 or 1 / (1 - m) <= 5 for rate, m in steps[:-1])


def test_in_a_long_run_steps_grow_for_as_large_a_part_of_it() -> None:
    short, long = lengths(90), lengths(900)

    np.testing.assert_allclose(long[::10], short)
    np.testing.assert_allclose(short[:9], [1 + done / 3 for done in range(9)])
    np.testing.assert_allclose(short[9:], 4.0)


@pytest.mark.parametrize("rounds", [1, 5])
def test_a_run_of_few_rounds_has_no_such_end(rounds: int) -> None:
    assert outer.Outer(rounds=rounds).at(0, workers=1) == (1.0, 0.0)
    assert outer.Outer(rounds=rounds).at(rounds - 1, 2)[0] == 1.0


def test_a_rate_beyond_the_gain_of_the_workers_leaves_no_room_for_momentum() -> None:
    assert outer.Outer(rate=1.6).at(100, workers=2) == (1.6, 0.0)


@pytest.mark.parametrize("done", [0, 1, 1000])
def test_a_momentum_of_the_users_is_the_same_in_every_round(done: int) -> None:
    rule = settings_of({"outer_momentum": 0.9, "rounds": 100}).outer_rule()

    assert rule.at(done, workers=2) == (0.7, 0.9)


def test_no_momentum_is_a_momentum_of_the_users_too() -> None:
    rule = settings_of({"outer_momentum": 0}).outer_rule()

    assert rule.at(100, workers=8) == (0.7, 0.0)


def test_workers_with_unequal_samples_count_as_fewer() -> None:
    assert outer.equal_workers([32, 32, 32, 32]) == 4
    assert outer.equal_workers([32, 32, 0, 0]) == 2
    assert 1 < outer.equal_workers([300, 100]) < 2
