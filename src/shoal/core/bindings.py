"""Which lease an attempt belongs to: it may start there, once, and nowhere else.

A lease has a fence of its own, and that is not enough: a scheduler that breaks the
rules could let an attempt wait at one lease and start it at another, or start it again
at another one after its end. So the latest attempts of each scheduler are remembered
with their leases. What is older than all of these was forgotten, and never starts.
Nor does what was sent under the id of a lease that was not given yet: it was refused,
and must not start when that lease is given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.model.ids import LeaseId

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.model.ids import Attempt, NodeId

BOUND_MAX: Final = 1_000
"""Attempts of one scheduler that are remembered."""

SCHEDULERS_MAX: Final = 256
"""Schedulers without a lease that are remembered."""


NOWHERE: Final = LeaseId("")


class _Bound(msgspec.Struct):
    leases: dict[Attempt, LeaseId] = {}
    floor: Attempt | None = None  # the latest attempt that was forgotten


@final
class Bindings:
    """Remembers where each attempt may start."""

    def __init__(
        self,
        is_idle: Callable[[NodeId], bool],
        is_guessed: Callable[[LeaseId], bool],
    ) -> None:
        """Ask `is_idle` whether a scheduler has no lease: only such are forgotten.

        Ask `is_guessed` whether an id may be that of a later lease.
        """
        self._is_idle = is_idle
        self._is_guessed = is_guessed
        self._of: dict[NodeId, _Bound] = {}  # whoever came last is last

    def lease_of(self, attempt: Attempt) -> LeaseId | None:
        """Return the lease of an attempt, while it is remembered."""
        bound = self._of.get(attempt.scheduler)
        return None if bound is None else bound.leases.get(attempt)

    def admits(self, attempt: Attempt, lease: LeaseId) -> bool:
        """Whether an attempt is new here, or belongs to this very lease."""
        bound = self._of.get(attempt.scheduler)
        if bound is None:
            return True
        known = bound.leases.get(attempt)
        if known is not None:
            return known == lease
        return bound.floor is None or attempt > bound.floor

    def bind(self, attempt: Attempt, lease: LeaseId) -> None:
        """Let an attempt belong to a lease, unless it belongs to one already."""
        bound = self._of.pop(attempt.scheduler, None)
        if bound is None:
            self._make_room()
            bound = _Bound()
        self._of[attempt.scheduler] = bound
        given = NOWHERE if self._is_guessed(lease) else lease
        bound.leases.setdefault(attempt, given)
        if len(bound.leases) > BOUND_MAX:
            oldest = next(iter(bound.leases))
            del bound.leases[oldest]
            bound.floor = max(oldest, bound.floor or oldest)

    def _make_room(self) -> None:
        """Forget a scheduler of long ago; one that has leases here is kept."""
        if len(self._of) < SCHEDULERS_MAX:
            return
        for node in self._of:
            if self._is_idle(node):
                del self._of[node]
                return
