"""Bind each attempt to one lease: it may start there, once, and nowhere else.

The fence of a lease is not enough: a scheduler that breaks the rules could queue an
attempt at one lease and start it at another, or start it again after its end. So the
latest attempts of each scheduler are remembered with their leases. An attempt older
than all of these never starts. Nor does one that was sent under the id of a lease not
yet given: it was refused, and must not start when that lease is given.
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
class AttemptBindings:
    """Remembers where each attempt may start."""

    def __init__(
        self,
        is_idle: Callable[[NodeId], bool],
        is_guessed: Callable[[LeaseId], bool],
    ) -> None:
        """Forget only schedulers that `is_idle` says have no lease.

        `is_guessed` says whether an id may be that of a later lease.
        """
        self._is_idle = is_idle
        self._is_guessed = is_guessed
        self._of: dict[NodeId, _Bound] = {}  # whoever came last is last

    def lease_of(self, attempt: Attempt) -> LeaseId | None:
        """Return the lease of an attempt, while it is remembered."""
        bound = self._of.get(attempt.scheduler)
        return None if bound is None else bound.leases.get(attempt)

    def admits(self, attempt: Attempt, lease: LeaseId) -> bool:
        """Whether an attempt is new here or bound to this lease."""
        bound = self._of.get(attempt.scheduler)
        if bound is None:
            return True
        known = bound.leases.get(attempt)
        if known is not None:
            return known == lease
        return bound.floor is None or attempt > bound.floor

    def bind(self, attempt: Attempt, lease: LeaseId) -> None:
        """Bind an attempt to a lease, unless it is bound already."""
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
        """Forget the oldest scheduler that has no lease here."""
        if len(self._of) < SCHEDULERS_MAX:
            return
        for node in self._of:
            if self._is_idle(node):
                del self._of[node]
                return
