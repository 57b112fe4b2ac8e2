"""Deltas are averaged by samples, and the outer step is that of DiLoCo."""

import numpy as np

from shoal.train.diloco import outer
from shoal.train.diloco.compression import Array


def array(*values: float) -> Array:
    return np.array(values, dtype=np.float32)


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

    add, _ = outer.step(outer.Outer(kind="sgd", rate=1.0), shared - own, array(0, 0, 0))

    np.testing.assert_array_equal(shared + add, own)


def test_nesterov_looks_ahead_along_its_momentum() -> None:
    rule = outer.Outer(rate=0.5, momentum=0.9)
    momentum = array(0)

    first, momentum = outer.step(rule, array(1), momentum)
    second, momentum = outer.step(rule, array(1), momentum)

    np.testing.assert_allclose(first, [-0.5 * (1 + 0.9)], rtol=1e-6)
    np.testing.assert_allclose(momentum, [1.9], rtol=1e-6)
    np.testing.assert_allclose(second, [-0.5 * (1 + 0.9 * 1.9)], rtol=1e-6)
