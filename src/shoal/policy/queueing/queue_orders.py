"""Queue orders: SJF, SRTF, Tiresias (LAS), F1, WFP3 and others, by one key each.

An order is a small class with a name and one method, `key`: the smallest is first,
and of equal ones the first to come. As with rankings, the same formula is used for
one job and, on columns of numbers, for all of them at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias, final

import numpy as np

from shoal.errors import UnknownPolicyError, did_you_mean
from shoal.policy.table.rows import Floats

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SHORT_S: Final = 10.0
"""Shorter jobs than this count as this long where slowdown is meant."""

TINY: Final = 1e-15
"""Keeps times and logarithms of zero from being divided by."""

LEVELS_SLOT_S: Final = (3_250.0, 7_200.0)
"""Slot-seconds of service at which a job sinks to the next queue of `las`."""

FloatOrColumn: TypeAlias = float | Floats
"""A number when it is about one job, a column of numbers when about all."""

Changes: TypeAlias = Literal["never", "by running", "by waiting"]


class WaitingJob(Protocol):
    """What an order may look at, of one job or of all of them at once."""

    @property
    def submitted_s(self) -> FloatOrColumn:
        """When it came."""
        ...

    @property
    def slots(self) -> FloatOrColumn:
        """Processors or GPUs that it needs at once."""
        ...

    @property
    def time_s(self) -> FloatOrColumn:
        """How long it runs at most, as far as known."""
        ...

    @property
    def remaining_s(self) -> FloatOrColumn:
        """Of that, what is left to run."""
        ...

    @property
    def served_slot_s(self) -> FloatOrColumn:
        """How long it ran so far, times its slots."""
        ...


class QueueOrder(Protocol):
    """Says who is first. `changes` tells when a key may change."""

    name: str
    changes: Changes

    def key(self, jobs: WaitingJob, now: float) -> FloatOrColumn:
        """Return a number to compare jobs by; the smallest is first."""
        ...


@final
class Fcfs:
    """First come, first served."""

    name = "fcfs"
    changes: Changes = "never"

    def key(self, jobs: WaitingJob, now: float) -> FloatOrColumn:
        """Compare when they came."""
        return jobs.submitted_s


@final
class Sjf:
    """The shortest job first."""

    name = "sjf"
    changes: Changes = "never"

    def key(self, jobs: WaitingJob, now: float) -> FloatOrColumn:
        """Compare how long they may run."""
        return jobs.time_s


@final
class Srtf:
    """The shortest remaining time first."""

    name = "srtf"
    changes: Changes = "by running"

    def key(self, jobs: WaitingJob, now: float) -> FloatOrColumn:
        """Compare how long they still run."""
        return jobs.remaining_s


@final
class Srsf:
    """The shortest remaining service first: time times slots."""

    name = "srsf"
    changes: Changes = "by running"

    def key(self, jobs: WaitingJob, now: float) -> FloatOrColumn:
        """Compare what they still occupy, for how long."""
        return jobs.remaining_s * jobs.slots


@final
class Las:
    """Least attained service, in queues: for jobs of unknown length.

    Tiresias (NSDI 2019) calls this discretised two-dimensional LAS.
    """

    name = "las"
    changes: Changes = "by running"
    levels_slot_s = LEVELS_SLOT_S

    def key(self, jobs: WaitingJob, now: float) -> FloatOrColumn:
        """Compare how many levels of service they have reached."""
        reached = np.searchsorted(self.levels_slot_s, jobs.served_slot_s, side="right")
        return np.asarray(reached, np.float64)


@final
class F1:
    """Short and narrow jobs first, and old ones: a formula found by regression."""

    name = "f1"
    changes: Changes = "never"

    def key(self, jobs: WaitingJob, now: float) -> FloatOrColumn:
        """Compare log10(time) slots + 870 log10(when submitted) (SC 2017)."""
        time_s = np.maximum(jobs.time_s, 0.1)
        submitted_s = np.where(jobs.submitted_s > 0, jobs.submitted_s, 0.1)
        by_age: FloatOrColumn = 870 * np.log10(submitted_s)
        return np.log10(time_s) * jobs.slots + by_age


@final
class Wfp3:
    """Jobs that have waited long for their length first, wide before narrow."""

    name = "wfp3"
    changes: Changes = "by waiting"

    def key(self, jobs: WaitingJob, now: float) -> FloatOrColumn:
        """Compare (wait / time)^3 slots."""
        waited = (now - jobs.submitted_s) / np.maximum(jobs.time_s, TINY)
        # A product is rounded alike for one job and for columns; a power is not.
        return -(waited * waited * waited) * jobs.slots


@final
class Unicep:
    """Jobs that have waited long for their length first, narrow before wide."""

    name = "unicep"
    changes: Changes = "by waiting"

    def key(self, jobs: WaitingJob, now: float) -> FloatOrColumn:
        """Compare wait / (log2(slots) time)."""
        waited = now - jobs.submitted_s + TINY
        time_s = np.maximum(jobs.time_s, TINY)
        return -waited / (np.log2(jobs.slots + TINY) * time_s)


@final
class Minnow:
    """Small fish first: jobs that gain most slowdown for the room they take.

    One second of waiting costs a job of length t a slowdown of 1 / max(t, 10). Serving
    it takes slots times t. Smith's rule says to serve by cost over size, largest first.
    `MinnowForesight` also looks at the room.
    """

    name = "minnow"
    changes: Changes = "never"

    def key(self, jobs: WaitingJob, now: float) -> FloatOrColumn:
        """Compare slots time max(time, 10 s)."""
        return jobs.slots * jobs.time_s * np.maximum(jobs.time_s, SHORT_S)


ORDERS: Final[Mapping[str, Callable[[], QueueOrder]]] = {
    "f1": F1,
    "fcfs": Fcfs,
    "las": Las,
    "minnow": Minnow,
    "sjf": Sjf,
    "srsf": Srsf,
    "srtf": Srtf,
    "unicep": Unicep,
    "wfp3": Wfp3,
}

ALIASES: Final[Mapping[str, str]] = {"fifo": "fcfs", "tiresias": "las", "2d-las": "las"}
"""Other names of the same orders, as papers have them."""


def order_named(name: str) -> QueueOrder:
    """Return the order of this name, in any case; raise if there is none."""
    wanted = name.lower()
    wanted = ALIASES.get(wanted, wanted)
    if wanted in ORDERS:
        return ORDERS[wanted]()
    raise UnknownPolicyError(
        f"no queue order '{name}'",
        because=f"there are {', '.join(ORDERS)}",
        hint=did_you_mean(wanted, [*ORDERS, *ALIASES]) or "any case will do",
    )
