"""Telling workers to run or stop attempts, until they answer.

Theory of operation. An `Assignment` is repeated with back-off until the worker says
that the attempt started, or the attempt is lost. A `Cancel` is repeated every
`RESEND_S` until a report shows that the attempt is over, or its lease is gone. Both
are idempotent at the worker. Nothing here is durable: the book has the live attempts,
and a restart sends their assignments again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from shoal.core.deadlines import DeadlineHeap, Deadlines
from shoal.core.events import Effect, Send
from shoal.core.timing import RESEND, RESEND_S
from shoal.model.ids import Attempt, NodeId
from shoal.protocol.messages import Assignment, Cancel

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.core.artifacts.provisions import Provisions
    from shoal.core.dispatch.run_states import TaskRun
    from shoal.core.negotiation.held_leases import HeldLease, HeldLeases
    from shoal.core.scheduling.job_book import JobBook


@final
class AssignmentSender:
    """Sends assignments and cancellations, and repeats them."""

    def __init__(
        self,
        book: JobBook,
        holdings: HeldLeases,
        heap: DeadlineHeap,
        where: Callable[[NodeId], str],
        provisions: Provisions,
    ) -> None:
        self._book = book
        self._holdings = holdings
        self._where = where
        self._provisions = provisions
        self._tries: dict[Attempt, int] = {}
        self._stopping: dict[Attempt, HeldLease] = {}
        self._resends: Deadlines[Attempt] = Deadlines(heap)

    def run(self, run: TaskRun, now: float) -> list[Effect]:
        """Tell a worker to run an attempt, after the one before it on its lease."""
        tries = self._tries[run.attempt] = self._tries.get(run.attempt, 0) + 1
        self._resends.set(run.attempt, now + RESEND.pause_s(tries - 1))
        task = self._book.tasks[run.task].task
        given, job = self._provisions.of(run, task), self._book.jobs[task.job]
        assignment = Assignment(
            lease=run.lease,
            attempt=run.attempt,
            task=task,
            gang=run.gang,
            places=self._places_of(run.gang),
            checkpoint=given.checkpoint,
            checkpoint_path=given.checkpoint_path,
            secrets=given.secrets,
            after=self._before(run),
            inputs=given.inputs,
            receipts=True,
            term=job.term,
            members=job.members,
        )
        return [Send(run.worker, assignment)]

    def run_again(self, run: TaskRun, now: float) -> list[Effect]:
        """Tell a worker to run an attempt that an earlier life may have sent."""
        self._tries[run.attempt] = 1
        return self.run(run, now)

    def stop(self, attempt: Attempt, holding: HeldLease, now: float) -> list[Effect]:
        """Tell a worker to stop an attempt that is not live, and keep its lease."""
        self._stopping[attempt] = holding
        self._resends.set(attempt, now + RESEND_S)
        group = self._book.groups.get(holding.group)
        grace_s = group.group.tasks[0].grace_s if group else 0.0
        cancel = Cancel(attempt=attempt, lease=holding.lease, grace_s=grace_s)
        return [Send(holding.worker, cancel)]

    def recall(self, holding: HeldLease) -> list[Effect]:
        """Call back the attempts that wait at a lease, unless they have started."""
        return [
            Send(
                run.worker,
                Cancel(attempt=run.attempt, lease=run.lease, unless_started=True),
            )
            for run in self._book.queued(holding.line)
        ]

    def started(self, attempt: Attempt) -> None:
        """Stop repeating the assignment of an attempt that runs, or is lost."""
        self._resends.drop(attempt)

    def forget(self, attempt: Attempt) -> None:
        """Forget an attempt that is no longer live."""
        self._resends.drop(attempt)
        self._tries.pop(attempt, None)

    def stopped(self, attempt: Attempt) -> None:
        """Stop cancelling an attempt: it is over."""
        self._stopping.pop(attempt, None)

    def due(self, now: float) -> list[Effect]:
        """Repeat what was not answered."""
        effects: list[Effect] = []
        for attempt in self._resends.pop_due(now):
            effects += self._again(attempt, now)
        return effects

    def _again(self, attempt: Attempt, now: float) -> list[Effect]:
        if run := self._book.runs.get(attempt):
            return self.run(run, now)
        holding = self._stopping.get(attempt)
        if holding is None or self._holdings.get(holding.lease) is not holding:
            self._stopping.pop(attempt, None)
            return []
        return self.stop(attempt, holding, now)

    def _before(self, run: TaskRun) -> Attempt | None:
        """Return the attempt that a queued run waits for."""
        holding = self._holdings.at(run.worker, run.lease) if run.queued else None
        if holding is None or run.attempt not in holding.line[1:]:
            return None
        return holding.line[holding.line.index(run.attempt) - 1]

    def _places_of(self, gang: tuple[NodeId, ...]) -> tuple[str, ...]:
        """Return the addresses of a gang by rank; none unless all are known."""
        places = tuple(self._where(node) for node in gang)
        return places if all(places) else ()
