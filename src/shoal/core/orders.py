"""What a scheduler tells workers about attempts, again and again until they answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from shoal.core.deadlines import DeadlineHeap, Deadlines
from shoal.core.events import Effect, Send
from shoal.core.timing import RESEND_MAX_S, RESEND_S
from shoal.model.ids import Attempt, NodeId
from shoal.protocol.messages import Assignment, Cancel

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.core.holdings import Holding, Holdings
    from shoal.core.jobs import JobBook, Run


@final
class Orders:
    """Says to run live attempts, and to stop others that may still run."""

    def __init__(
        self,
        book: JobBook,
        holdings: Holdings,
        heap: DeadlineHeap,
        where: Callable[[NodeId], str],
    ) -> None:
        self._book = book
        self._holdings = holdings
        self._where = where
        self._tries: dict[Attempt, int] = {}
        self._stopping: dict[Attempt, Holding] = {}
        self._resends: Deadlines[Attempt] = Deadlines(heap)

    def run(self, run: Run, now: float) -> list[Effect]:
        """Say to run an attempt, or to let it wait for the one before on its lease."""
        tries = self._tries[run.attempt] = self._tries.get(run.attempt, 0) + 1
        wait_s = min(RESEND_MAX_S, RESEND_S * 2 ** min(tries - 1, 8))
        self._resends.set(run.attempt, now + wait_s)
        assignment = Assignment(
            lease=run.lease,
            attempt=run.attempt,
            task=self._book.tasks[run.task].task,
            gang=run.gang,
            places=self._places_of(run.gang),
            after=self._before(run),
        )
        return [Send(run.worker, assignment)]

    def run_again(self, run: Run, now: float) -> list[Effect]:
        """Say to run what an earlier life may have sent already."""
        self._tries[run.attempt] = 1
        return self.run(run, now)

    def stop(self, attempt: Attempt, holding: Holding, now: float) -> list[Effect]:
        """Say to stop an attempt that is live no longer; its lease is used again."""
        self._stopping[attempt] = holding
        self._resends.set(attempt, now + RESEND_S)
        group = self._book.groups.get(holding.group)
        grace_s = group.group.tasks[0].grace_s if group else 0.0
        cancel = Cancel(attempt=attempt, lease=holding.lease, grace_s=grace_s)
        return [Send(holding.worker, cancel)]

    def recall(self, holding: Holding) -> list[Effect]:
        """Ask for what waits at a lease, unless it has started there after all."""
        return [
            Send(
                run.worker,
                Cancel(attempt=run.attempt, lease=run.lease, unless_started=True),
            )
            for run in self._book.queued(holding.line)
        ]

    def started(self, attempt: Attempt) -> None:
        """Say nothing more to an attempt that runs, or that nobody waits for."""
        self._resends.drop(attempt)

    def forget(self, attempt: Attempt) -> None:
        """Forget an attempt that is live no longer."""
        self._resends.drop(attempt)
        self._tries.pop(attempt, None)

    def stopped(self, attempt: Attempt) -> None:
        """Note that an attempt is over."""
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

    def _before(self, run: Run) -> Attempt | None:
        """Return the attempt whose end one that was sent ahead waits for."""
        holding = self._holdings.at(run.worker, run.lease) if run.queued else None
        if holding is None or run.attempt not in holding.line[1:]:
            return None
        return holding.line[holding.line.index(run.attempt) - 1]

    def _places_of(self, gang: tuple[NodeId, ...]) -> tuple[str, ...]:
        """Return where a gang is, by rank; nothing unless all of it is known."""
        places = tuple(self._where(node) for node in gang)
        return places if all(places) else ()
