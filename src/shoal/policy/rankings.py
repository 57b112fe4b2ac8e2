"""Which of the workers that fit a task suits it best.

A ranking is a small class with a name and one method, `key`: the worker with the
smallest key wins. The same formula is used for one worker and, on columns, for all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from shoal.model.ids import NodeId
from shoal.policy.filters import mask
from shoal.policy.grid import Grid
from shoal.policy.rows import Room
from shoal.policy.shapes import Need
from shoal.policy.shortlist import Key, WhenFuller

if TYPE_CHECKING:
    from collections.abc import Collection
    from random import Random

CPUS_PER_GPU: Final = 16
"""How many CPUs one GPU counts for when the size of a worker matters."""


DRAWS_MAX: Final = 32
"""Workers that `Uniform` draws before it looks at all of them."""


@final
class Simple:
    """Least waste: the smallest GPUs that will do, then the fullest worker."""

    name = "simple"
    when_fuller: WhenFuller = "better"

    def key(self, need: Need, room: Room) -> Key:
        """Compare GPU memory taken, then GPUs left, then CPU left."""
        return room.gpu_memory_taken(need), room.gpu_milli, room.cpu_milli


@final
class Balanced:
    """Spread the load: fewest tasks for the size of the worker, most free GPUs."""

    name = "balanced"
    when_fuller: WhenFuller = "worse"

    def key(self, need: Need, room: Room) -> Key:
        """Compare tasks by size, then free GPUs, then free CPU.

        A task without GPUs goes where there are fewest of them to be in the way.
        """
        if need.gpu is None:
            load = room.active / (room.cpu_milli_all + 1)
            return load, room.gpu_milli_all, -room.cpu_milli
        size = room.cpu_milli_all + CPUS_PER_GPU * room.gpu_milli_all + 1
        return room.active / size, -room.gpu_milli, -room.cpu_milli


@final
class Uniform:
    """Any worker that fits, each with the same chance."""

    name = "random"

    def choose(
        self, need: Need, grid: Grid, rng: Random, skip: Collection[NodeId]
    ) -> int | None:
        """Draw a row that fits and whose node is not in `skip`, if there is one."""
        order = grid.order()
        for _ in range(min(DRAWS_MAX, len(order))):
            index = int(order[rng.randrange(len(order))])
            row = grid.rows[index]
            if row is not None and row.node not in skip and row.fits(need):
                return index
        fitting: list[int] = order[mask(need, grid)[order]].tolist()
        left = [i for i in fitting if (row := grid.rows[i]) and row.node not in skip]
        return rng.choice(left) if left else None
