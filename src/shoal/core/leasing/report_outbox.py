"""The reports that a worker repeats until the scheduler acknowledges them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.core.deadlines import DeadlineHeap, Deadlines
from shoal.core.timing import REPORT_KEEP_S, RESEND, RESEND_S
from shoal.model.ids import Attempt, NodeId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from shoal.protocol.messages import Report

REPORTS_MAX: Final = 10_000


class _Pending(msgspec.Struct):
    report: Report
    since: float
    tries: int = 0


@final
class ReportOutbox:
    """Unacknowledged reports; the oldest are dropped when it is full."""

    def __init__(self, heap: DeadlineHeap) -> None:
        self.complete = True  # nothing was ever forgotten without acknowledgement
        self._pending: dict[Attempt, _Pending] = {}
        self._deadlines: Deadlines[Attempt] = Deadlines(heap)

    def __len__(self) -> int:
        return len(self._pending)

    def get(self, attempt: Attempt) -> Report | None:
        """Return the report of an ended attempt, while it is kept."""
        pending = self._pending.get(attempt)
        return None if pending is None else pending.report

    def add(self, report: Report, now: float) -> None:
        """Keep `report` and repeat it until it is acknowledged."""
        if len(self._pending) >= REPORTS_MAX:
            self._give_up(next(iter(self._pending)))
        self._pending[report.attempt] = _Pending(report, now)
        self._deadlines.set(report.attempt, now + RESEND_S)

    def acknowledge(self, peer: NodeId, attempts: Iterable[Attempt]) -> None:
        """Drop reports that `peer` acknowledges, of its own attempts only."""
        for attempt in attempts:
            if attempt.scheduler == peer:
                self._forget(attempt)

    def hasten(self, peer: NodeId, now: float) -> None:
        """Repeat all reports for `peer` at once, because it is back."""
        for attempt in self._pending:
            if attempt.scheduler == peer:
                self._deadlines.set(attempt, now)

    def due(self, now: float, is_out: Callable[[NodeId], bool]) -> list[Report]:
        """Return the reports that are due again, with back-off.

        Who is out of the shoal is told nothing more.
        """
        again: list[Report] = []
        for attempt in self._deadlines.pop_due(now):
            pending = self._pending[attempt]
            if is_out(attempt.scheduler):
                self._forget(attempt)
                continue
            if now - pending.since > REPORT_KEEP_S:
                self._give_up(attempt)
                continue
            pending.tries += 1
            self._deadlines.set(attempt, now + RESEND.pause_s(pending.tries))
            again.append(pending.report)
        return again

    def _give_up(self, attempt: Attempt) -> None:
        self.complete = False
        self._forget(attempt)

    def _forget(self, attempt: Attempt) -> None:
        self._pending.pop(attempt, None)
        self._deadlines.drop(attempt)
