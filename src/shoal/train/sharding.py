# pyright: basic
# torch describes its types only in part.
"""Parts of a dataset, one for each process that trains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.utils.data import Subset

if TYPE_CHECKING:
    from collections.abc import Sized


def shard_of(dataset: Sized, rank: int, world: int) -> Subset[Any]:
    """Return every `world`-th sample, from `rank` on.

    The parts have no sample in common, and together they are the whole.
    """
    places = range(rank % world, len(dataset), world)
    return Subset(dataset, places)  # type: ignore[arg-type]  # A Sized dataset will do.
