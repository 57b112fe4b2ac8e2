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
    from collections.abc import Iterator

    from shoal.core.holdings import Holding, Holdings, Shape

WAITING_MAX: Final = 8
"""Tasks that wait at one lease; a worker takes twice as many."""

SHARES: Final = 2
"""What waits is divided among so many times the leases: ends come out even so."""


@final
class Lines:
    """Knows at which leases more tasks may wait."""

    def __init__(self, holdings: Holdings, heap: DeadlineHeap) -> None:
        self.opened = False  # whether a line has room again since that was asked
        self._holdings = holdings
        self._open: dict[GroupId, dict[LeaseId, None]] = {}
        self._recalls: Deadlines[LeaseId] = Deadlines(heap)

    def measured(self, holding: Holding, ran_s: float) -> None:
        """Note how long the last task took: so long may the next ones take."""
        holding.ahead = min(WAITING_MAX, int(AHEAD_S / max(ran_s, 1e-6)))

    def changed(self, holding: Holding, now: float) -> None:
        """Note that a task has joined a line, or left it."""
        waiting = len(holding.line) - 1
        if waiting > 0:
            self._recalls.set(holding.lease, now + RECALL_S)
        else:
            self._recalls.drop(holding.lease)
        # To send a few at a time costs less than one by one.
        low = holding.ahead > 0 and 0 <= waiting <= holding.ahead // 4
        if low and now - holding.since <= TENURE_S:
            self._open.setdefault(holding.group, {})[holding.lease] = None
            self.opened = True
        else:
            self._forget(holding.group, holding.lease)

    def close(self, holding: Holding) -> None:
        """Let nothing more wait at a lease, until a task on it was short."""
        holding.ahead = 0
        self._forget(holding.group, holding.lease)

    def share(self, shape: Shape, wanting: int) -> int:
        """Return how many of those that want a slot may wait at one lease."""
        return wanting // (SHARES * max(1, self._holdings.count(shape)))

    def open_for(self, group: GroupId) -> Iterator[tuple[Holding, int]]:
        """Return the leases that a group uses where more can wait, and how many."""
        for lease in list(self._open.get(group, ())):
            holding = self._holdings.get(lease)
            if holding is None or not holding.line or holding.group != group:
                self._forget(group, lease)
            else:
                yield holding, holding.ahead - (len(holding.line) - 1)

    def overdue(self, now: float) -> Iterator[Holding]:
        """Return the leases at which something has waited for too long."""
        for lease in self._recalls.pop_due(now):
            holding = self._holdings.get(lease)
            if holding is not None and len(holding.line) > 1:
                self.close(holding)
                self._recalls.set(lease, now + RESEND_S)
                yield holding

    def _forget(self, group: GroupId, lease: LeaseId) -> None:
        leases = self._open.get(group)
        if leases is not None:
            leases.pop(lease, None)
            if not leases:
                del self._open[group]
