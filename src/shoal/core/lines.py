"""Short lines of tasks at a scheduler's leases: the next starts when one ends.

Between two tasks of a lease lie a report, the disk and an assignment, and perhaps a
long way. Where tasks are short that is most of the time, so some of those that wait
are sent ahead: as many as take about `AHEAD_S`, and never so many that other leases
run dry. What waits longer than it should is called back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from shoal.core.deadlines import DeadlineHeap, Deadlines
from shoal.core.timing import AHEAD_S, RECALL_S, RESEND_S, TENURE_S
from shoal.model.ids import GroupId, LeaseId

if TYPE_CHECKING:
    from shoal.core.holdings import Holding

WAITING_MAX: Final = 8
"""Tasks that wait at one lease; a worker takes twice as many."""

SHARES: Final = 2
"""What waits is divided among so many times the leases: ends come out even so."""


@final
class Lines:
    """Knows at which leases more tasks may wait, and where they wait too long."""

    def __init__(self, heap: DeadlineHeap) -> None:
        self.opened = False  # whether a line has room again since that was asked
        self._open: dict[GroupId, dict[LeaseId, Holding]] = {}
        self._waited_at: dict[LeaseId, Holding] = {}
        self._recalls: Deadlines[LeaseId] = Deadlines(heap)

    def measured(self, holding: Holding, ran_s: float) -> None:
        """Note how long the last task took: so long may the next ones take."""
        holding.ahead = min(WAITING_MAX, int(AHEAD_S / max(ran_s, 1e-6)))

    def changed(self, holding: Holding, now: float) -> None:
        """Note that a task has joined a line, or left it."""
        waiting = len(holding.line) - 1
        if waiting > 0:
            self._waited_at[holding.lease] = holding
            self._recalls.set(holding.lease, now + RECALL_S)
        else:
            self._waited_at.pop(holding.lease, None)
            self._recalls.drop(holding.lease)
        # To send a few at a time costs less than one by one.
        low = holding.ahead > 0 and 0 <= waiting <= holding.ahead // 4
        if low and now - holding.since <= TENURE_S:
            self._open.setdefault(holding.group, {})[holding.lease] = holding
            self.opened = True
        else:
            self._shut(holding)

    def close(self, holding: Holding) -> None:
        """Let nothing more wait at a lease, until a task on it was short."""
        holding.ahead = 0
        self._shut(holding)

    def forget(self, holding: Holding) -> None:
        """Forget a lease that is ours no longer."""
        self._shut(holding)
        self._waited_at.pop(holding.lease, None)
        self._recalls.drop(holding.lease)

    def open_for(self, group: GroupId) -> list[tuple[Holding, int]]:
        """Return the leases that a group uses where more can wait, and how many."""
        return [
            (holding, holding.ahead - (len(holding.line) - 1))
            for holding in self._open.get(group, {}).values()
        ]

    def overdue(self, now: float) -> list[Holding]:
        """Return the leases at which something has waited for too long."""
        found = [self._waited_at[lease] for lease in self._recalls.pop_due(now)]
        for holding in found:
            self.close(holding)
            self._recalls.set(holding.lease, now + RESEND_S)
        return found

    def _shut(self, holding: Holding) -> None:
        leases = self._open.get(holding.group)
        if leases is not None:
            leases.pop(holding.lease, None)
            if not leases:
                del self._open[holding.group]


def share(wanting: int, leases: int) -> int:
    """Return how many of those that want a slot may wait at one of so many leases."""
    return wanting // (SHARES * max(1, leases))
