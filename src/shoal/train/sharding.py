# pyright: basic
# torch describes its types only in part.
"""Parts of a dataset, and random numbers, one for each process that trains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch
from torch.utils.data import Subset

if TYPE_CHECKING:
    from collections.abc import Sized

RANKS_APART: Final = 1_000_003
"""More than steps of a run, so that no two processes ever draw alike."""


def shard_of(dataset: Sized, rank: int, world: int) -> Subset[Any]:
    """Return every `world`-th sample, from `rank` on.

    The parts have no sample in common, and together they are the whole.
    """
    places = range(rank % world, len(dataset), world)
    return Subset(dataset, places)  # type: ignore[arg-type]  # A Sized dataset will do.


def own_seed(rank: int, step: int) -> None:
    """Let torch draw what no other process draws, and the same in each repetition."""
    torch.manual_seed((torch.initial_seed() + rank * RANKS_APART + step) % (1 << 63))
