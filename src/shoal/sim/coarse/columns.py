"""Jobs as columns of numbers, which orders of queues compare."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from shoal.policy.rows import Amount

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.sim.traces.values import Job

Floats: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.int64]


@final
class JobColumns:
    """What orders may look at, of all jobs; what is left changes as jobs run."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.submitted_s: Floats = np.array([job.submitted_s for job in jobs], float)
        self.run_s: Floats = np.array([job.run_s for job in jobs], float)
        self.time_s: Floats = np.array([job.requested_s for job in jobs], float)
        self.slots: Floats = np.array([job.slots for job in jobs], float)
        self.remaining_s: Floats = self.time_s.copy()
        self.served_slot_s: Floats = np.zeros(len(jobs))

    def __len__(self) -> int:
        return len(self.submitted_s)

    def only(self, chosen: Indices) -> SomeJobs:
        """Return the columns of some of the jobs."""
        return SomeJobs(
            self.submitted_s[chosen],
            self.slots[chosen],
            self.time_s[chosen],
            self.remaining_s[chosen],
            self.served_slot_s[chosen],
        )


@final
class SomeJobs:
    """Some of the jobs; satisfies `Waiting` of the orders."""

    __slots__ = ("remaining_s", "served_slot_s", "slots", "submitted_s", "time_s")

    def __init__(
        self,
        submitted_s: Amount,
        slots: Amount,
        time_s: Amount,
        remaining_s: Amount,
        served_slot_s: Amount,
    ) -> None:
        self.submitted_s = submitted_s
        self.slots = slots
        self.time_s = time_s
        self.remaining_s = remaining_s
        self.served_slot_s = served_slot_s
