# pyright: basic
# torch describes its types only in part.
"""How far a loop is whose steps are counted here, and what is due after a round."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from shoal.train.sharding import shard_of

if TYPE_CHECKING:
    from collections.abc import Sized

    from torch.utils.data import Subset

    from shoal.train.settings import TrainSettings


class RoundEnd(msgspec.Struct, frozen=True):
    """A round that has just ended, and what is due after it."""

    number: int  # from 1
    is_last: bool
    saves: bool  # a checkpoint, as it is every so often
    validates: bool


class StepCount(msgspec.Struct):
    """Counts steps; `inner_steps` of them are a round."""

    settings: TrainSettings
    done: int = 0

    @property
    def round(self) -> int:
        """How many rounds are done."""
        return self.done // self.settings.inner_steps

    @property
    def is_over(self) -> bool:
        """Whether all steps are done."""
        return self.round >= self.settings.rounds

    def add(self) -> RoundEnd | None:
        """Count a step; return the round that ends with it, if one does."""
        self.done += 1
        if self.done % self.settings.inner_steps:
            return None
        number, is_last = self.round, self.is_over
        return RoundEnd(
            number,
            is_last,
            saves=number % self.settings.checkpoint_every == 0,
            validates=is_last or number % self.settings.validate_every == 0,
        )


class CountedRun:
    """A run that is over after a fixed number of steps: alone, or in step with others.

    It is process `rank` of `world` that train together.
    """

    def __init__(self, settings: TrainSettings, rank: int = 0, world: int = 1) -> None:
        self.rank, self.world = rank, world
        self._steps = StepCount(settings)

    @property
    def round(self) -> int:
        """How many times `inner_steps` are done."""
        return self._steps.round

    @property
    def global_step(self) -> int:
        """How many steps are done."""
        return self._steps.done

    @property
    def finished(self) -> bool:
        """Whether nothing is left to compute."""
        return self._steps.is_over

    def shard(self, dataset: Sized) -> Subset[Any]:
        """Return this process's part; `rank` and `world` may be others after a loss."""
        return shard_of(dataset, self.rank, self.world)
