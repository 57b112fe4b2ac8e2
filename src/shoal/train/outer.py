"""The outer optimiser: from the workers' deltas to the next weights of all.

A delta is what a worker's inner steps took away from the shared weights; averaged and
weighted by the samples behind each, deltas are the gradient of the outer step. All of
it is numpy in single precision and in a fixed order, so the same parts give the same
bits on every machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Array = NDArray[np.float32]

OuterKind = Literal["nesterov", "sgd"]


class Outer(msgspec.Struct, frozen=True, kw_only=True):
    """The rule of the outer step."""

    kind: OuterKind = "nesterov"
    rate: float = 0.7
    momentum: float = 0.9


def weighted_mean(parts: Sequence[tuple[Array, int]]) -> Array:
    """Return the mean of arrays, each counted by its number of samples.

    Who processed nothing counts nothing; at least one must have processed something.
    """
    total = sum(samples for _, samples in parts)
    assert total > 0, "a mean of nothing"
    mean = np.zeros(parts[0][0].shape, dtype=np.float64)
    for array, samples in parts:
        mean += array.astype(np.float64) * (samples / total)
    return mean.astype(np.float32)


def step(rule: Outer, gradient: Array, momentum: Array) -> tuple[Array, Array]:
    """Return what to add to the weights, and the momentum afterwards."""
    rate, keep = np.float32(-rule.rate), np.float32(rule.momentum)
    if rule.kind == "sgd":
        return rate * gradient, momentum
    momentum = keep * momentum + gradient
    return rate * (gradient + keep * momentum), momentum
