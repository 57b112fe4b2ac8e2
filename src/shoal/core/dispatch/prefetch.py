"""Sending short tasks ahead, so that the next starts the moment one ends.

Theory of operation. Between two tasks on a lease lie a report, a disk write and an
assignment, perhaps over a long distance. For short tasks that is most of the time. So
attempts are sent ahead and wait in line at a lease in use: as many as take about
`AHEAD_S`, judged by the task that ran there last, at most `WAITING_MAX`, and no more
than a fair share, or other leases would run dry. A line that runs low is *open* until
it is filled up. Attempts that wait for more than `RECALL_S` are called back. A lease
older than `TENURE_S` gets no more: its worker may want it for others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from shoal.core.deadlines import DeadlineHeap, Deadlines
from shoal.core.timing import AHEAD_S, RECALL_S, RESEND_S, TENURE_S
from shoal.model.ids import GroupId, LeaseId

if TYPE_CHECKING:
    from shoal.core.negotiation.held_leases import HeldLease

WAITING_MAX: Final = 8
"""Attempts that wait at one lease at most; workers accept twice as many."""

SHARES: Final = 2
"""One lease gets 1/SHARES of its even share, so all run dry at about one time."""


@final
class Prefetch:
    """Knows which lines are open, and which have waited too long."""

    def __init__(self, heap: DeadlineHeap) -> None:
        self._open: dict[GroupId, dict[LeaseId, HeldLease]] = {}
        self._waited_at: dict[LeaseId, HeldLease] = {}
        self._recalls: Deadlines[LeaseId] = Deadlines(heap)

    def measured(self, holding: HeldLease, ran_s: float) -> None:
        """Set how many may wait at a lease, by how long its last task took."""
        if holding.shape.kept:
            return  # Who takes the job up finds one attempt on each lease.
        holding.ahead = min(WAITING_MAX, int(AHEAD_S / max(ran_s, 1e-6)))

    def changed(self, holding: HeldLease, now: float) -> bool:
        """Note that a line grew or shrank; return whether it is open."""
        waiting = len(holding.line) - 1
        if waiting > 0:
            self._waited_at[holding.lease] = holding
            self._recalls.set(holding.lease, now + RECALL_S)
        else:
            self._waited_at.pop(holding.lease, None)
            self._recalls.drop(holding.lease)
        # To send several at a time costs less than one by one.
        low = holding.ahead > 0 and 0 <= waiting <= holding.ahead // 4
        if low and now - holding.since <= TENURE_S:
            self._open.setdefault(holding.group, {})[holding.lease] = holding
            return True
        self._shut(holding)
        return False

    def close(self, holding: HeldLease) -> None:
        """Send nothing more ahead to a lease, until a short task ends there."""
        holding.ahead = 0
        self._shut(holding)

    def forget(self, holding: HeldLease) -> None:
        """Forget a lease that is no longer ours."""
        self._shut(holding)
        self._waited_at.pop(holding.lease, None)
        self._recalls.drop(holding.lease)

    def open_for(self, group: GroupId) -> list[tuple[HeldLease, int]]:
        """Return the open leases of a group, and how many more can wait at each."""
        return [
            (holding, holding.ahead - (len(holding.line) - 1))
            for holding in self._open.get(group, {}).values()
        ]

    def overdue(self, now: float) -> list[HeldLease]:
        """Return the leases at which attempts have waited too long, and close them."""
        found = [self._waited_at[lease] for lease in self._recalls.pop_due(now)]
        for holding in found:
            self.close(holding)
            self._recalls.set(holding.lease, now + RESEND_S)
        return found

    def _shut(self, holding: HeldLease) -> None:
        leases = self._open.get(holding.group)
        if leases is not None:
            leases.pop(holding.lease, None)
            if not leases:
                del self._open[holding.group]


def share(wanting: int, leases: int) -> int:
    """Return how many of the waiting tasks one of the leases may get ahead."""
    return wanting // (SHARES * max(1, leases))
