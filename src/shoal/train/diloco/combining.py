"""Combine the workers' deltas into one: their mean, or what outliers cannot move.

`trimmed` leaves out the largest and the smallest values at each place, a quarter on
either side; `median` takes the one in the middle. Both count workers and not samples,
since samples are what a worker says of itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, get_args

import numpy as np

from shoal.train.diloco import outer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.train.diloco.compression import Array

Combination = Literal["mean", "trimmed", "median"]
COMBINATIONS: Final[tuple[Combination, ...]] = get_args(Combination)
TRIMMED: Final = 4
"""One in this many is left out at either side, and at least one."""


def combine(parts: Sequence[tuple[Array, int]], by: Combination) -> Array:
    """Combine arrays, each with its samples; of two or less it is their mean."""
    if by == "mean" or len(parts) <= 2:
        return outer.weighted_mean(parts)
    rows = np.stack([array for array, _ in parts])
    middle: Array
    if by == "median":
        middle = np.median(rows, axis=0).astype(np.float32)
        return middle
    out = max(1, len(parts) // TRIMMED)
    kept = np.sort(rows, axis=0)[out : len(parts) - out]
    middle = kept.mean(axis=0, dtype=np.float64).astype(np.float32)
    return middle
