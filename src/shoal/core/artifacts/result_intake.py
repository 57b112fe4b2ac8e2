"""Accepts results only with their outputs.

Theory of operation. A worker repeats the report of an ended attempt until it is
acknowledged. A report that names no outputs is accepted at once, and so is one of a
preempted attempt, which is tried again. Any other is *held*: the host is asked to fetch
the outputs, and the scheduler hears of the result only when they are on this node's
disk. So a result that was accepted outlives its worker.

Before that, all that the attempt printed must be here (`core/dispatch/output_intake`):
a report that overtook some of it has that sent again, and waits for its next repeat. If
its worker had no room for some of it, the log says so. That an attempt was preempted is
noted at once: if its worker is lost before the rest of its output came, it was
preempted all the same, and not lost.

    Report --outputs named--> held --OutputsFetched--> accepted, acknowledged
                                   --OutputsLost-----> a success is accepted as lost
                                                       and tried again; what failed
                                                       stays that
    Report --no outputs-----> accepted, acknowledged
           --preempted------> accepted, acknowledged, without outputs

While a report is held, its repeats say that the attempt is not lost, and nothing else.
A report of an attempt that is live no longer needs no outputs: it is acknowledged. If
an attempt is fenced while its report is held, the fetch is dropped, and the report is
acknowledged when the host has done so: the worker may be gone for good, and the fetch
would go on for minutes.

What a worker claims as the digest of its result is dropped. The digest that results are
compared by comes from the host, which made it of what it fetched.

Nothing here is journalled. A crash forgets what is held, and the worker repeats it. At
most `HELD_MAX` reports are held; others wait for their next repeat.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.core.artifacts.events import (
    DropOutputs,
    FetchOutputs,
    OutputsFetched,
    OutputsLost,
)
from shoal.core.events import DoubtOutput
from shoal.core.verification.replication import succeeded
from shoal.model.ids import BlobId
from shoal.protocol.messages import ALL_OUTPUTS, Outcome, Report

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shoal.core.dispatch.dispatcher import Dispatcher
    from shoal.core.dispatch.output_intake import OutputIntake
    from shoal.core.dispatch.run_states import EndedRun, TaskRun
    from shoal.core.scheduling.job_book import JobBook
    from shoal.core.scheduling.notices import Consequence
    from shoal.model.ids import Attempt, NodeId

HELD_MAX: Final = 256


class ReportHeld(msgspec.Struct):
    """A report whose outputs are on their way, and the attempt that it is of."""

    run: TaskRun
    report: Report


@final
class ResultIntake:
    """Holds reports back until their outputs are here."""

    def __init__(
        self, book: JobBook, dispatcher: Dispatcher, printed: OutputIntake
    ) -> None:
        """Pass complete reports to `dispatcher`, after what was `printed`."""
        self._book = book
        self._printed = printed
        self._dispatcher = dispatcher
        self._held: dict[Attempt, ReportHeld] = {}

    def __len__(self) -> int:
        """Return how many reports are held."""
        return len(self._held)

    def on_report(self, peer: NodeId, report: Report, now: float) -> list[Consequence]:
        """Take in the end of an attempt; ask for its outputs, if it names any."""
        run = self._book.runs.get(report.attempt)
        if run is None or run.worker != peer:
            return self._dispatcher.on_report(peer, _with_digest(report, ""), now)
        if not self._printed.has_all(peer, report.place):
            if report.outcome.kind == "preempted":
                run.preempted = report.outcome.reason
            follows = self._dispatcher.on_started(peer, report.attempt, now)
            return [*follows, *self._printed.ask(peer, now)]
        noted = _noted_on_log(run, report)
        return [*noted, *self._on_whole_report(run, report, now)]

    def _on_whole_report(
        self, run: TaskRun, report: Report, now: float
    ) -> list[Consequence]:
        peer = run.worker
        if not report.outcome.outputs:
            return self._dispatcher.on_report(peer, _with_digest(report, ""), now)
        if report.outcome.kind == "preempted":
            # It is tried again, so its outputs are of no use; waiting for them could
            # outlast its worker, and a preemption would count as a loss.
            outcome = _without_outputs(report.outcome, "")
            report = msgspec.structs.replace(report, outcome=outcome)
            return self._dispatcher.on_report(peer, report, now)
        # It is not lost, or it would be tried again meanwhile.
        follows = self._dispatcher.on_started(peer, report.attempt, now)
        if report.attempt in self._held or len(self._held) >= HELD_MAX:
            return follows
        assert run.has_begun  # The book tells of the end of no other.
        self._held[report.attempt] = ReportHeld(run, report)
        return [*follows, self._fetch(run, report.outcome)]

    def settle(
        self, event: OutputsFetched | OutputsLost, now: float
    ) -> list[Consequence]:
        """Accept a report whose outputs are here, or take its result for lost."""
        held = self._held.pop(event.attempt)
        if held.run.state == "over":
            report = _with_digest(held.report, "")  # Its outputs are not needed.
        elif isinstance(event, OutputsFetched):
            report = _with_digest(held.report, event.digest)
        else:
            outcome = _without_outputs(held.report.outcome, event.reason)
            report = msgspec.structs.replace(held.report, outcome=outcome)
        return self._dispatcher.on_report(held.run.worker, report, now)

    def drop(self, ended: Iterable[EndedRun]) -> list[DropOutputs]:
        """Fetch no longer for attempts that the last event fenced.

        Each attempt ends once, so its fetch is dropped once.
        """
        attempts = (each.run.attempt for each in ended)
        return [DropOutputs(attempt) for attempt in attempts if attempt in self._held]

    def _fetch(self, run: TaskRun, outcome: Outcome) -> FetchOutputs:
        record = self._book.tasks[run.task]
        verify = self._book.group_of(run.task).group.verify
        if verify is None or not succeeded(outcome):
            return FetchOutputs(run.attempt, run.worker, record.task, outcome)
        earlier = {
            answer.outcome.digest: BlobId(answer.outcome.outputs[ALL_OUTPUTS])
            for answer in record.answers
            if answer.outcome.digest and ALL_OUTPUTS in answer.outcome.outputs
        }
        return FetchOutputs(
            run.attempt, run.worker, record.task, outcome, verify, earlier
        )


def _noted_on_log(run: TaskRun, report: Report) -> list[Consequence]:
    """Say that the log of an attempt lacks lines, or that it does not after all."""
    if report.missing:
        why = f"its worker had no room for {report.missing} bytes"
        return [DoubtOutput(run.task, run.attempt, why)]
    return [DoubtOutput(run.task, run.attempt)] if run.lost else []


def _without_outputs(outcome: Outcome, reason: str) -> Outcome:
    """Return how an attempt ended whose outputs are lost: only a success needs them."""
    if succeeded(outcome):
        return Outcome("lost", reason=reason)
    return msgspec.structs.replace(outcome, outputs={}, digest="")


def _with_digest(report: Report, digest: str) -> Report:
    if report.outcome.digest == digest:
        return report
    outcome = msgspec.structs.replace(report.outcome, digest=digest)
    return msgspec.structs.replace(report, outcome=outcome)
