"""In which order to serve jobs that wait, when lengths or services count.

An order is a small class with a name and one method, `key`: the smallest is first,
and of equal ones the first to come. As with rankings, the same formula is used for
one job and, on columns of numbers, for all of them at once.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias, final

import numpy as np

from shoal.errors import UnknownPolicyError
from shoal.policy.rows import Amount

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SHORT_S: Final = 10.0
"""Shorter jobs than this count as this long where slowdown is meant."""

TINY: Final = 1e-15
"""Keeps a logarithm of one from being divided by."""

LEVELS_SLOT_S: Final = (3_250.0, 7_200.0)
"""Slot-seconds of service at which a job sinks to the next queue of `las`."""

Changes: TypeAlias = Literal["never", "by running", "by waiting"]


class Waiting(Protocol):
    """What an order may look at, of one job or of all of them at once."""

    @property
    def submitted_s(self) -> Amount:
        """When it came."""
        ...

    @property
    def slots(self) -> Amount:
        """Processors or GPUs that it needs at once."""
        ...

    @property
    def time_s(self) -> Amount:
        """How long it runs at most, as far as anybody knows."""
        ...

    @property
    def remaining_s(self) -> Amount:
        """Of that, what is left to run."""
        ...

    @property
    def served_slot_s(self) -> Amount:
        """How long it ran so far, times its slots."""
        ...


class Order(Protocol):
    """Says who is first. `changes` tells when a key may change."""

    name: str
    changes: Changes

    def key(self, jobs: Waiting, now: float) -> Amount:
        """Return a number to compare jobs by; the smallest is first."""
        ...


@final
class Fcfs:
    """First come, first served."""

    name = "fcfs"
    changes: Changes = "never"

    def key(self, jobs: Waiting, now: float) -> Amount:
        """Compare when they came."""
        return jobs.submitted_s


@final
class Sjf:
    """The shortest job first."""

    name = "sjf"
    changes: Changes = "never"

    def key(self, jobs: Waiting, now: float) -> Amount:
        """Compare how long they may run."""
        return jobs.time_s


@final
class Srtf:
    """The shortest remaining time first."""

    name = "srtf"
    changes: Changes = "by running"

    def key(self, jobs: Waiting, now: float) -> Amount:
        """Compare how long they still run."""
        return jobs.remaining_s


@final
class Srsf:
    """The shortest remaining service first: time times slots."""

    name = "srsf"
    changes: Changes = "by running"

    def key(self, jobs: Waiting, now: float) -> Amount:
        """Compare what they still occupy, for how long."""
        return jobs.remaining_s * jobs.slots


@final
class Las:
    """Least attained service, in queues: for jobs of which nobody knows how long.

    Tiresias (NSDI 2019) calls this discretised two-dimensional LAS.
    """

    name = "las"
    changes: Changes = "by running"
    levels_slot_s = LEVELS_SLOT_S

    def key(self, jobs: Waiting, now: float) -> Amount:
        """Compare how many levels of service they have reached."""
        served = jobs.served_slot_s
        return sum((served >= level) * 1 for level in self.levels_slot_s)


@final
class F1:
    """Short and narrow jobs first, and old ones: a formula found by regression."""

    name = "f1"
    changes: Changes = "never"

    def key(self, jobs: Waiting, now: float) -> Amount:
        """Compare log10(time) slots + 870 log10(when submitted) (SC 2017)."""
        time_s = np.maximum(jobs.time_s, 0.1)
        submitted_s = np.where(jobs.submitted_s > 0, jobs.submitted_s, 0.1)
        return np.log10(time_s) * jobs.slots + 870 * np.log10(submitted_s)


@final
class Wfp3:
    """Whoever has waited long for its length first, wide jobs before narrow ones."""

    name = "wfp3"
    changes: Changes = "by waiting"

    def key(self, jobs: Waiting, now: float) -> Amount:
        """Compare (wait / time)^3 slots."""
        waited = (now - jobs.submitted_s) / jobs.time_s
        return -(waited**3) * jobs.slots


@final
class Unicep:
    """Whoever has waited long for its length first, narrow jobs before wide ones."""

    name = "unicep"
    changes: Changes = "by waiting"

    def key(self, jobs: Waiting, now: float) -> Amount:
        """Compare wait / (log2(slots) time)."""
        waited = now - jobs.submitted_s + TINY
        return -waited / (np.log2(jobs.slots + TINY) * jobs.time_s)


@final
class Minnow:
    """Small fish first: whoever gains most slowdown for the room that it takes.

    One second of waiting costs a job of length t a slowdown of 1 / max(t, 10). Serving
    it takes slots times t. Smith's rule says to serve by cost over size, largest first.
    """

    name = "minnow"
    changes: Changes = "never"

    def key(self, jobs: Waiting, now: float) -> Amount:
        """Compare slots time max(time, 10 s)."""
        return jobs.slots * jobs.time_s * np.maximum(jobs.time_s, SHORT_S)


ORDERS: Final[Mapping[str, Callable[[], Order]]] = {
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


def order_named(name: str) -> Order:
    """Return the order of this name, in any case; raise if there is none."""
    wanted = name.lower()
    wanted = ALIASES.get(wanted, wanted)
    if wanted in ORDERS:
        return ORDERS[wanted]()
    near = get_close_matches(wanted, [*ORDERS, *ALIASES], n=1)
    raise UnknownPolicyError(
        f"no queue order '{name}'",
        because=f"there are {', '.join(ORDERS)}",
        hint=f"did you mean {near[0]}?" if near else "any case will do",
    )
