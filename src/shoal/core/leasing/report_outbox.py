"""The reports that a worker repeats until the scheduler acknowledges them.

Each says how much output came before it, whenever it is sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.core.deadlines import DeadlineHeap, Deadlines
from shoal.core.events import Send
from shoal.core.timing import REPORT_KEEP_S, RESEND, RESEND_S
from shoal.model.ids import Attempt, NodeId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from shoal.core.events import Effect
    from shoal.core.leasing.output_outbox import OutputOutbox
    from shoal.model.ids import LeaseId
    from shoal.protocol.messages import Outcome, Report

REPORTS_MAX: Final = 10_000


class _Pending(msgspec.Struct):
    report: Report
    since: float
    tries: int = 0


@final
class ReportOutbox:
    """Unacknowledged reports; the oldest are dropped when it is full."""

    def __init__(self, heap: DeadlineHeap, outputs: OutputOutbox) -> None:
        """Forget the output of attempts in `outputs` along with their reports."""
        self._outputs = outputs
        self.complete = True  # nothing was ever forgotten without acknowledgement
        self._pending: dict[Attempt, _Pending] = {}
        self._deadlines: Deadlines[Attempt] = Deadlines(heap)

    def __len__(self) -> int:
        return len(self._pending)

    def get(self, attempt: Attempt) -> Report | None:
        """Return the report of an ended attempt, while it is kept."""
        pending = self._pending.get(attempt)
        return None if pending is None else self._outputs.stamp(pending.report)

    def leases_of(self, peer: NodeId) -> set[LeaseId]:
        """Return the leases whose ends a scheduler has not acknowledged."""
        return {
            pending.report.lease
            for attempt, pending in self._pending.items()
            if attempt.scheduler == peer
        }

    def add(self, report: Report, now: float) -> list[Effect]:
        """Send `report`, and repeat it until it is acknowledged."""
        effects: list[Effect] = []
        if len(self._pending) >= REPORTS_MAX:
            effects += self._give_up(next(iter(self._pending)))
        self._pending[report.attempt] = _Pending(report, now)
        self._deadlines.set(report.attempt, now + RESEND_S)
        return [*effects, self._send(report)]

    def acknowledge(self, peer: NodeId, attempts: Iterable[Attempt]) -> list[Effect]:
        """Drop reports that `peer` acknowledges, of its own attempts only."""
        effects: list[Effect] = []
        for attempt in attempts:
            if attempt.scheduler == peer:
                effects += self._forget(attempt)
        return effects

    def rename(self, was: Attempt, attempt: Attempt, now: float) -> bool:
        """Send a report under the new name of its attempt; False: there is none."""
        pending = self._pending.pop(was, None)
        if pending is None:
            return False
        self._deadlines.drop(was)
        pending.report = msgspec.structs.replace(pending.report, attempt=attempt)
        self._pending[attempt] = pending
        self._deadlines.set(attempt, now)
        return True

    def hasten(self, peer: NodeId, now: float) -> None:
        """Repeat all reports for `peer` at once, because it is back."""
        for attempt in self._pending:
            if attempt.scheduler == peer:
                self._deadlines.set(attempt, now)

    def due(self, now: float, is_out: Callable[[NodeId], bool]) -> list[Effect]:
        """Send the reports that are due again, with back-off.

        Who is out of the shoal is told nothing more.
        """
        effects: list[Effect] = []
        for attempt in self._deadlines.pop_due(now):
            pending = self._pending[attempt]
            if is_out(attempt.scheduler):
                effects += self._forget(attempt)
                continue
            if now - pending.since > REPORT_KEEP_S:
                effects += self._give_up(attempt)
                continue
            pending.tries += 1
            self._deadlines.set(attempt, now + RESEND.pause_s(pending.tries))
            effects.append(self._send(pending.report))
        return effects

    def _send(self, report: Report) -> Send:
        return Send(report.attempt.scheduler, self._outputs.stamp(report))

    def _give_up(self, attempt: Attempt) -> list[Effect]:
        self.complete = False
        return self._forget(attempt)

    def _forget(self, attempt: Attempt) -> list[Effect]:
        if self._pending.pop(attempt, None) is None:
            return []
        self._deadlines.drop(attempt)
        return self._outputs.forget(attempt)


def with_verdict(outcome: Outcome, verdict: Outcome | None) -> Outcome:
    """Return the outcome: if we stopped the task, that counts, not its exit code.

    A program that is told to stop often exits with 0 after a checkpoint.
    """
    if verdict is None:
        return outcome
    return msgspec.structs.replace(
        verdict, exit_code=outcome.exit_code, outputs=outcome.outputs
    )
