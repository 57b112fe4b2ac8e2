"""With its defaults, DiLoCo ends where training in step does, however short the run.

A softmax regression with wrong labels, in numpy: all workers are rows of one array.
Benchmarks ask the same of networks (benchmarks/diloco_defaults.py).
"""

import numpy as np
import pytest

from shoal.train.diloco import outer
from shoal.train.diloco.compression import Array
from shoal.train.settings import settings_of

FEATURES, CLASSES = 12, 5
BATCH, INNER_STEPS = 8, 10
TOLERATED = 1.03


class Adam:
    """Adam's inner steps, of all workers at once."""

    def __init__(self, rows: int) -> None:
        self.weights = np.zeros((rows, FEATURES, CLASSES), dtype=np.float32)
        self._first = np.zeros_like(self.weights)
        self._second = np.zeros_like(self.weights)
        self._steps = 0

    def step(self, gradient: Array) -> None:
        self._steps += 1
        self._first += 0.1 * (gradient - self._first)
        self._second += 0.001 * (gradient**2 - self._second)
        first = self._first / (1 - 0.9**self._steps)
        second = self._second / (1 - 0.999**self._steps)
        self.weights -= 0.02 * first / (np.sqrt(second) + 1e-8)


class Problem:
    """Points whose class is mostly the one that hidden weights give them."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._hidden = self._rng.normal(size=(FEATURES, CLASSES))
        self._kept = self.draw(1, 4_000)

    def draw(self, workers: int, rows: int) -> tuple[Array, Array]:
        x = self._rng.normal(size=(workers, rows, FEATURES))
        noise = self._rng.gumbel(size=(workers, rows, CLASSES))
        y = np.eye(CLASSES)[(x @ self._hidden + noise).argmax(-1)]
        return x.astype(np.float32), y.astype(np.float32)

    def loss(self, weights: Array) -> float:
        x, y = self._kept
        return float(-(y * np.log(chances(x @ weights))).sum(-1).mean())


def chances(scores: Array) -> Array:
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True), dtype=np.float32)


def gradients(weights: Array, x: Array, y: Array) -> Array:
    """Return the gradient of each worker's batch at its own weights."""
    error = chances(x @ weights) - y
    return np.asarray(x.transpose(0, 2, 1) @ error / x.shape[1], dtype=np.float32)


def worse_by(rule: outer.Outer, workers: int, rounds: int, seed: int = 1) -> float:
    """Return DiLoCo's loss over that of training in step with the same batches."""
    problem, in_step, inner = Problem(seed), Adam(1), Adam(workers)
    shared, momentum = inner.weights[0].copy(), np.zeros_like(inner.weights[0])
    for done in range(rounds):
        for _ in range(INNER_STEPS):
            x, y = problem.draw(workers, BATCH)
            inner.step(gradients(inner.weights, x, y))
            each = gradients(in_step.weights, x, y)
            in_step.step(each.mean(axis=0, keepdims=True))
        deltas = [(shared - own, BATCH) for own in inner.weights]
        add, momentum = outer.step(
            rule,
            outer.weighted_mean(deltas),
            momentum,
            rounds_done=done,
            workers=outer.equal_workers([samples for _, samples in deltas]),
        )
        shared = shared + add
        inner.weights[:] = shared
    return problem.loss(shared) / problem.loss(in_step.weights[0])


@pytest.mark.parametrize("workers", [2, 4, 8])
@pytest.mark.parametrize("rounds", [20, 60, 200])
def test_the_defaults_are_within_three_percent_of_training_in_step(
    workers: int, rounds: int
) -> None:
    rule = settings_of({"rounds": rounds}).outer_rule()

    assert worse_by(rule, workers, rounds) < TOLERATED
