"""The outer optimiser: from the workers' deltas to the next weights.

A delta is what a worker's inner steps took away from the shared weights; averaged and
weighted by the samples behind each, deltas are the gradient of the outer step. All of
it is numpy in single precision and in a fixed order, so the same parts give the same
bits on every machine.

Deltas may also be combined by what outliers cannot move. `trimmed` leaves out the
largest and the smallest values at each place, a quarter on either side; `median` takes
the one in the middle. Both count workers and not samples, since samples are what a
worker says of itself.

Momentum m makes a step up to 1 / (1 - m) times as long, after about as many rounds.
Unless the user gives a number, rate and momentum follow the round, the workers and the
length of the run:

- **As long as n ** (2/3) mean deltas** is a step of n workers in the end. The mean of n
  deltas is less noisy than each; an adaptive optimiser in step with all would see so
  and take longer steps, up to sqrt(n), but inner optimisers, each with the noise of its
  own batches, cannot. The rest makes up for what the warm-up costs.
- **The first step is the mean delta**, rate 1 without momentum. Momentum rises as
  t / (t + c), Nesterov's sequence: what it remembers is never longer than 1 / c of
  the rounds so far, so that the large deltas of the first rounds are forgotten. The
  rate falls from 1 as momentum takes over, to that of the user. c is 3 at the least,
  and a thirtieth of the run: a network that has just begun bends the way, and how many
  rounds it does so for depends on how much is learned in a round, not on their number.
- **A short run goes as far as a long one.** Of 20 rounds nine would be warm-up. So its
  steps grow on, until their mean over the run is what it is where c is a thirtieth. And
  the rate stays so high that momentum remembers no more than a quarter of the run: what
  it remembers for longer has no time to count.
- **In the last tenth of the rounds the rate falls** to a tenth of itself. Weights are
  then a mean over those rounds, and long steps leave no noise in the result.

All of it depends on the number of the round and on its samples alone, so an aggregator
that takes over goes on with the same steps.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Literal

import msgspec
import numpy as np

from shoal.train.diloco.compression import Array

if TYPE_CHECKING:
    from collections.abc import Sequence

OuterKind = Literal["nesterov", "sgd"]
Combination = Literal["mean", "trimmed", "median"]

WARM_UP_LEAST: Final = 3
"""The least for which Nesterov's sequence t / (t + c) is known to accelerate."""

WARM_UP: Final = 1 / 30
"""The part of a run that c is: so steps of eight workers grow for a tenth of it."""

GAIN: Final = 2 / 3
"""By this power of their number workers make the step longer."""

MEMORY: Final = 1 / 4
"""The part of a run that momentum remembers, at most, while the rate is below 1."""

TAIL: Final = 0.1
"""The part of a run in which the rate falls, and by how much it does."""

TRIMMED: Final = 4
"""One in this many is left out at either side, and at least one."""


class Outer(msgspec.Struct, frozen=True, kw_only=True):
    """The outer optimiser: its kind, learning rate and momentum.

    Without a momentum, both follow the round and the workers; in a run of so many
    `rounds` also its end, if that is known.
    """

    kind: OuterKind = "nesterov"
    rate: float = 0.7
    momentum: float | None = None
    rounds: int = 0

    def at(self, rounds_done: int, workers: float) -> tuple[float, float]:
        """Return rate and momentum after `rounds_done` rounds."""
        assert rounds_done >= 0
        assert workers >= 1
        if self.kind == "sgd":
            return self.rate, 0.0
        if self.momentum is not None:
            return self.rate, self.momentum
        length = self._length(workers)
        steady = self.rate
        if self.rounds:
            steady = max(steady, min(1.0, length / (MEMORY * self.rounds)))
        limit = max(0.0, 1.0 - steady / length)
        momentum = min(limit, rounds_done / (rounds_done + self._warm_up))
        rate = max(steady, min(1.0, length * (1.0 - momentum)))
        return rate * self._ending(rounds_done), momentum

    @property
    def _warm_up(self) -> float:
        """By how many rounds steps get longer by one mean delta."""
        return max(WARM_UP_LEAST, WARM_UP * self.rounds)

    def _length(self, workers: float) -> float:
        """Return how many mean deltas the longest step is.

        Growing to a length of 1 + x costs a run of T rounds x^2 c / 2T of its mean.
        """
        more: float = workers**GAIN - 1.0
        if not self.rounds or self._warm_up > WARM_UP_LEAST:
            return 1.0 + more
        cost = WARM_UP_LEAST / (2 * self.rounds)
        wanted = more - more**2 * WARM_UP / 2
        under_root = 1.0 - 4 * cost * wanted
        if under_root < 0:  # It does not get as far, so it grows to its end.
            return 1.0 + self.rounds / WARM_UP_LEAST
        return 1.0 + (1.0 - math.sqrt(under_root)) / (2 * cost)

    def _ending(self, rounds_done: int) -> float:
        """Return what is left of the rate near the end of a run."""
        if not self.rounds:
            return 1.0
        left = (self.rounds - rounds_done) / (TAIL * self.rounds)
        return min(1.0, max(TAIL, left))


def weighted_mean(parts: Sequence[tuple[Array, int]]) -> Array:
    """Return the mean of arrays, weighted by their samples.

    A part without samples does not count; at least one part must have some.
    """
    total = sum(samples for _, samples in parts)
    assert total > 0, "a mean of nothing"
    mean = np.zeros(parts[0][0].shape, dtype=np.float64)
    for array, samples in parts:
        mean += array.astype(np.float64) * (samples / total)
    return mean.astype(np.float32)


def equal_workers(samples: Sequence[int]) -> float:
    """Return how many workers with equal samples would have a mean as noisy."""
    return sum(samples) ** 2 / sum(each**2 for each in samples)


def step(
    rule: Outer, gradient: Array, momentum: Array, *, rounds_done: int, workers: float
) -> tuple[Array, Array]:
    """Return the update to the weights, and the new momentum."""
    rate, kept = rule.at(rounds_done, workers)
    if rule.kind == "sgd":
        return _times(-rate, gradient), momentum
    momentum = _times(kept, momentum) + gradient
    ahead = gradient + _times(kept, momentum)
    return _times(-rate, ahead), momentum


def followed(
    rule: Outer, update: Array, momentum: Array, *, rounds_done: int, workers: float
) -> Array:
    """Return the momentum behind an update, for who knows only that and the one before.

    It is `step` the other way round. What compression took away from an update is all
    that it errs by, and an error shrinks by half or more with each update.
    """
    if rule.kind == "sgd":
        return momentum
    rate, kept = rule.at(rounds_done, workers)
    ahead = _times(-1.0 / rate, update)
    return _times(1.0 / (1.0 + kept), ahead + _times(kept, momentum))


def _times(factor: float, array: Array) -> Array:
    """Multiply in single precision; numpy might promote the scalar."""
    return np.multiply(array, np.float32(factor), dtype=np.float32)


def combine(parts: Sequence[tuple[Array, int]], by: Combination) -> Array:
    """Combine arrays, each with its samples; of two or less it is their mean."""
    if by == "mean" or len(parts) <= 2:
        return weighted_mean(parts)
    rows = np.stack([array for array, _ in parts])
    middle: Array
    if by == "median":
        middle = np.median(rows, axis=0).astype(np.float32)
        return middle
    out = max(1, len(parts) // TRIMMED)
    kept = np.sort(rows, axis=0)[out : len(parts) - out]
    middle = kept.mean(axis=0, dtype=np.float64).astype(np.float32)
    return middle
