"""EASY backfill: one reservation, for the first job that waits.

Others may pass it if they do not delay it. Cheaper than the plan of `backfill`, which
makes a promise to every group, and enough where all slots are alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shoal.policy.table.rows import Floats, Ints


class EasyReservation(msgspec.Struct, frozen=True):
    """When the first that waits can start, and how many slots are left over then."""

    at_s: float
    spare: int

    def lets_pass(self, slots: int, ends_s: float) -> bool:
        """Whether a job that fits now does not delay the one with the promise."""
        return ends_s <= self.at_s or slots <= self.spare

    def without(self, slots: int, ends_s: float) -> EasyReservation:
        """Return the promise as it stands once such a job has jumped ahead."""
        if ends_s <= self.at_s:
            return self
        return EasyReservation(self.at_s, self.spare - slots)


def reserve(
    wanted: int, free: int, running: Iterable[tuple[float, int]], now: float
) -> EasyReservation:
    """Promise a start as soon as enough slots are free, by when jobs end at the latest.

    `running` are such ends with their slots. If all of them together are not enough,
    the promise is for the last end.
    """
    at_s = now
    for ends_s, slots in sorted(running):
        free += slots
        at_s = ends_s
        if free >= wanted:
            break
    return EasyReservation(at_s, max(0, free - wanted))


def idle_slot_s(
    wanted: Ints, free: int, running: Iterable[tuple[float, int]], now: float
) -> Floats:
    """Return how much room lies idle until each of these sizes fits.

    `running` is as for `reserve`. Slots that are free wait, and slots that get free, if
    nothing else starts; what overran its request is about to end.
    """
    frees, idle = [free], [0.0]
    at_s = now
    for ends_s, slots in sorted(running):
        if ends_s > at_s:
            idle.append(idle[-1] + frees[-1] * (ends_s - at_s))
            at_s = ends_s
        else:
            idle.append(idle[-1])
        frees.append(frees[-1] + slots)
    enough = np.searchsorted(np.array(frees), wanted)
    waste: Floats = np.array(idle)[np.minimum(enough, len(idle) - 1)]
    return waste
