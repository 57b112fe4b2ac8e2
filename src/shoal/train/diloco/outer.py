"""The outer optimiser: from the workers' deltas to the next weights.

A delta is what a worker's inner steps took away from the shared weights; averaged and
weighted by the samples behind each, deltas are the gradient of the outer step. All of
it is numpy in single precision and in a fixed order, so the same parts give the same
bits on every machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec
import numpy as np

from shoal.train.diloco.compression import Array

if TYPE_CHECKING:
    from collections.abc import Sequence

OuterKind = Literal["nesterov", "sgd"]


class Outer(msgspec.Struct, frozen=True, kw_only=True):
    """The outer optimiser: its kind, learning rate and momentum."""

    kind: OuterKind = "nesterov"
    rate: float = 0.7
    momentum: float = 0.9


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


def step(rule: Outer, gradient: Array, momentum: Array) -> tuple[Array, Array]:
    """Return the update to the weights, and the new momentum."""
    if rule.kind == "sgd":
        return _times(-rule.rate, gradient), momentum
    momentum = _times(rule.momentum, momentum) + gradient
    ahead = gradient + _times(rule.momentum, momentum)
    return _times(-rule.rate, ahead), momentum


def _times(factor: float, array: Array) -> Array:
    """Multiply in single precision; numpy might promote the scalar."""
    return np.multiply(array, np.float32(factor), dtype=np.float32)
