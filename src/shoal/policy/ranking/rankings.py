"""The simple rankings: balanced, best-fit, dot-product, nearest, simple, random.

Each is a small class with a name and one method, `key`. The same formula is used for
one worker and, on columns, for all of them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, final

from shoal.model.ids import NodeId
from shoal.policy.interface import ChooseBy
from shoal.policy.ranking.ranking import Ranking
from shoal.policy.table.rows import IntOrColumn, RowRoom
from shoal.policy.table.shortlist import Key, WhenFuller
from shoal.policy.table.task_shapes import Need

if TYPE_CHECKING:
    from collections.abc import Collection
    from random import Random

    from shoal.policy.interface import PlacementRequest
    from shoal.policy.table.fitting_rows import FittingRows
    from shoal.policy.table.worker_table import WorkerTable

CPUS_PER_GPU: Final = 16
"""How many CPUs one GPU counts for when the size of a worker matters."""


@final
class Simple(Ranking):
    """Least waste: the smallest GPUs that will do, then the fullest worker."""

    name = "simple"
    when_fuller: WhenFuller = "better"

    def key(self, need: Need, room: RowRoom) -> Key:
        """Compare GPU memory taken, then GPUs left, then CPU left."""
        return room.gpu_memory_taken(need), room.gpu_milli, room.cpu_milli


@final
class Balanced(Ranking):
    """Spread the load: fewest tasks for the size of the worker, most free GPUs."""

    name = "balanced"
    when_fuller: WhenFuller = "worse"

    def key(self, need: Need, room: RowRoom) -> Key:
        """Compare tasks by size, then free GPUs, then free CPU.

        A task without GPUs goes where there are fewest of them to be in the way.
        """
        if need.gpu is None:
            load = room.active / (room.cpu_milli_all + 1)
            return load, room.gpu_milli_all, -room.cpu_milli
        size = room.cpu_milli_all + CPUS_PER_GPU * room.gpu_milli_all + 1
        return room.active / size, -room.gpu_milli, -room.cpu_milli


@final
class Nearest(Ranking):
    """Here if there is room, else the worker with the cheapest path to it."""

    name = "nearest"
    when_fuller: WhenFuller = "worse"

    def key(self, need: Need, room: RowRoom) -> Key:
        """Compare the cost of the path, then as `Balanced` does."""
        return room.path_cost_us, *BALANCED.key(need, room)


@final
class BestFit(Ranking):
    """Leave least behind, CPU and GPU together."""

    name = "best-fit"
    when_fuller: WhenFuller = "better"

    def key(self, need: Need, room: RowRoom) -> Key:
        """Compare what would be left of a node of 128 CPUs and 8 GPUs, in per cent.

        This is the score published with FGD, 100 (1 - cpu / 256 - gpu / 16) rounded
        down, in integers and the other way round.
        """
        cpu_milli = room.cpu_milli - need.cpu_milli
        gpu_milli = room.gpu_milli - need.gpu_milli * need.gpus_min
        return (_divided_up(cpu_milli + 16 * gpu_milli, 2_560),)


@final
class DotProduct(Ranking):
    """Match tasks to workers that have little left of what the task wants most."""

    name = "dot-product"
    when_fuller: WhenFuller = "better"

    def key(self, need: Need, room: RowRoom) -> Key:
        """Compare the product of what would be left and what is asked, in per cent.

        This too is a score published with FGD, for nodes of 128 CPUs and 8 GPUs.
        """
        gpu_wanted_milli = need.gpu_milli * need.gpus_min
        cpu = (room.cpu_milli - need.cpu_milli) * need.cpu_milli
        gpu = (room.gpu_milli - gpu_wanted_milli) * gpu_wanted_milli
        return (_divided_up(50 * (cpu + 256 * gpu), 128_000**2),)


@final
class Uniform:
    """Any worker that fits, each with the same chance."""

    name = "random"

    def chooser(self, request: PlacementRequest, table: WorkerTable) -> ChooseBy:
        """Draw a worker for each task anew."""
        fitting = table.fitting(request.shape)
        return ChooseBy(fitting.need, partial(self.draw, fitting, request.rng))

    def draw(
        self, fitting: FittingRows, rng: Random, skip: Collection[NodeId] = ()
    ) -> int | None:
        """Draw a row that fits and whose node is not in `skip`, if there is one."""
        fitting.catch_up()
        drawn = fitting.draw(1, rng, skip)
        return drawn[0] if drawn else None


BALANCED: Final = Balanced()


def _divided_up(amount: IntOrColumn, by: int) -> IntOrColumn:
    return -(-amount // by)
