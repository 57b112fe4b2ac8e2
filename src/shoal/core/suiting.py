"""Which of a group's waiting tasks suits a worker, and who is not to be asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.core.holdings import Holdings, Shape
    from shoal.core.jobs import GroupRecord, JobBook
    from shoal.core.verifying import Verifier
    from shoal.core.views import Views
    from shoal.model.ids import NodeId, TaskId


@final
class Suiting:
    """Keeps second runs apart from first ones, and results from those they check."""

    def __init__(
        self, book: JobBook, views: Views, holdings: Holdings, verifier: Verifier
    ) -> None:
        self._book = book
        self._views = views
        self._holdings = holdings
        self._verifier = verifier

    def task_for(self, group: GroupRecord, worker: NodeId, now: float) -> TaskId | None:
        """Return the next waiting task that may run there: a straggler may not."""
        if group.group.verify is not None:
            return self._verifier.task_for(group, worker, now)
        for task in group.waiting:
            record = self._book.tasks[task]
            if task not in group.seconds:
                return task
            if all(run.worker != worker for run in record.live.values()):
                return task
        return None

    def unsuited(self, group: GroupRecord, shape: Shape, now: float) -> list[NodeId]:
        """Return the workers that are not asked for slots of this group.

        Where a slot of the same shape is idle, what waits must not run.
        """
        if group.group.verify is None:
            return self._running_at(group)
        nodes = self._views.table.nodes()
        idle = self._holdings.idle_at(shape)
        return [*self._verifier.barred(group, nodes, now), *idle]

    def shunned(self, now: float) -> Sequence[NodeId]:
        """Return the workers that get a task only where nobody else has room."""
        owners = self._book.standings.shunned(self._book.wall_s(now))
        if not owners:
            return ()
        whose = self._verifier.owners(self._views.table.nodes(), now)
        return [node for node, owner in whose.items() if owner in owners]

    def _running_at(self, group: GroupRecord) -> list[NodeId]:
        """Return where the stragglers of a group run: not there a second time."""
        return [
            run.worker
            for task in group.seconds
            for run in self._book.tasks[task].live.values()
        ]
