"""Forage: keep free GPUs usable, and count only those with CPU left to feed them.

FGD calls a free GPU usable by a typical task if one such task fits. But a worker with
eight free GPUs and CPU for one more task can use one of them, not eight. So here the
GPUs that a typical task could use count only as far as the CPU and the memory of the
worker go round. They go to a mixture of tasks: what a GPU takes of them is the mean
over all typical tasks, and not what this one would take. Everything else is as in FGD,
of which this is a refinement.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import numpy as np

from shoal.model.resources import WHOLE_GPU_MILLI, Profile
from shoal.policy.ranking.fragmentation import LearnedGradient
from shoal.policy.ranking.gradient import Gradient, usable
from shoal.policy.table.grid import Columns
from shoal.policy.table.rows import Ints as Column

if TYPE_CHECKING:
    from shoal.policy.ranking.gradient import Devices, FreeColumns, Typical


@final
class Forage(Gradient):
    """Least waste: keep free GPUs usable that there is CPU and memory left to feed."""

    name = "forage"
    memo_max = 131_072

    def __init__(self, typical: Typical) -> None:
        super().__init__(typical)
        wants = [(each, each.gpu, seen) for each, seen in typical if each.gpu]
        milli = sum(seen * gpu.count * gpu.milli for _, gpu, seen in wants)
        cpu_milli = sum(seen * each.cpu_milli for each, _, seen in wants)
        memory_bytes = sum(
            seen * each.memory_bytes // gpu.count for each, gpu, seen in wants
        )
        tasks = sum(seen for _, _, seen in wants)
        # On average, CPU of a whole GPU, and memory of whoever uses one or a share.
        self._cpu_milli = WHOLE_GPU_MILLI * cpu_milli // max(1, milli)
        self._memory_bytes = memory_bytes // max(1, tasks)

    def _counts(self, profile: Profile) -> bool:
        return profile.gpu is not None

    def _loss(
        self, cpu_milli: int, memory_bytes: int, total: int, devices: Devices
    ) -> int:
        fed = total
        if self._cpu_milli:
            fed = min(fed, WHOLE_GPU_MILLI * max(0, cpu_milli) // self._cpu_milli)
        if self._memory_bytes:
            room = WHOLE_GPU_MILLI * max(0, memory_bytes) // self._memory_bytes
            fed = min(fed, room)
        used = 0
        for typical, seen in self._needs:
            fitting, share = usable(typical, devices)
            if (
                fitting >= typical.gpus_min
                and cpu_milli >= typical.cpu_milli
                and memory_bytes >= typical.memory_bytes
            ):
                used += seen * min(share, fed)
        return sum(seen for _, seen in self.typical) * total - used

    def _loss_of_columns(self, columns: Columns, free: FreeColumns) -> Column:
        seen_all = sum(seen for _, seen in self.typical)
        fed: Column = free.gpu_milli.sum(axis=0)
        waste: Column = seen_all * fed
        for here, each in (
            (free.cpu_milli, self._cpu_milli),
            (free.memory_bytes, self._memory_bytes),
        ):
            if each:
                fed = np.minimum(fed, WHOLE_GPU_MILLI * np.maximum(here, 0) // each)
        for typical, seen, fitting, share in self._usable_of_columns(columns, free):
            enough = fitting >= typical.gpus_min
            enough &= free.cpu_milli >= typical.cpu_milli
            enough &= free.memory_bytes >= typical.memory_bytes
            waste -= seen * np.minimum(share, fed) * enough
        return waste


@final
class LearnedForage(LearnedGradient):
    """Least waste of GPUs that CPU and memory can feed, for tasks like those seen."""

    make = Forage
