"""Forage: keep free GPUs usable, and count only those with CPU left to feed them.

FGD calls a free GPU usable by a typical task if one such task fits. But a worker with
eight free GPUs and CPU for one more task can use one of them, not eight. So here the
GPUs that a typical task could use count only as far as the CPU and the memory of the
worker go round. Everything else is as in FGD, of which this is a refinement.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import numpy as np

from shoal.model.resources import Profile
from shoal.policy.ranking.fragmentation import LearnedGradient
from shoal.policy.ranking.gradient import Gradient, usable
from shoal.policy.table.grid import Columns
from shoal.policy.table.rows import Ints as Column

if TYPE_CHECKING:
    from shoal.policy.ranking.gradient import Devices, FreeColumns


@final
class Forage(Gradient):
    """Least waste: keep free GPUs usable that there is CPU and memory left to feed."""

    name = "forage"
    memo_max = 131_072

    def _counts(self, profile: Profile) -> bool:
        return profile.gpu is not None

    def _loss(
        self, cpu_milli: int, memory_bytes: int, total: int, devices: Devices
    ) -> int:
        used = 0
        for typical, seen in self._needs:
            fitting, share = usable(typical, devices)
            tasks = fed = fitting // typical.gpus_min
            if tasks == 0:
                continue
            if typical.cpu_milli:
                fed = min(fed, max(0, cpu_milli) // typical.cpu_milli)
            if typical.memory_bytes:
                fed = min(fed, max(0, memory_bytes) // typical.memory_bytes)
            used += seen * (share * fed // tasks)
        return sum(seen for _, seen in self.typical) * total - used

    def _loss_of_columns(self, columns: Columns, free: FreeColumns) -> Column:
        seen_all = sum(seen for _, seen in self.typical)
        waste: Column = seen_all * free.gpu_milli.sum(axis=0)
        for typical, seen, fitting, share in self._usable_of_columns(columns, free):
            tasks = fed = fitting // typical.gpus_min
            if typical.cpu_milli:
                fed = np.minimum(
                    fed, np.maximum(free.cpu_milli, 0) // typical.cpu_milli
                )
            if typical.memory_bytes:
                room = np.maximum(free.memory_bytes, 0) // typical.memory_bytes
                fed = np.minimum(fed, room)
            waste -= seen * (share * fed // np.maximum(tasks, 1))
        return waste


@final
class LearnedForage(LearnedGradient):
    """Least waste of GPUs that CPU and memory can feed, for tasks like those seen."""

    make = Forage
