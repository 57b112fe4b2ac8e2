"""Which of a group's waiting tasks suits a worker, and who is not to be asked.

A worker may take a task and then not start it: it is broken, or it lies. As long as
another one could run the task, such a worker gets none of its group, for longer each
time. Else it would be the first to have room for it again, and one bad worker would
fail the jobs of everybody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from shoal.core.deadlines import DeadlineHeap, Deadlines
from shoal.core.holdings import shape_of
from shoal.model.ids import GroupId, NodeId
from shoal.policy.shapes import Shape as PlacedShape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.core.holdings import Holdings, Shape
    from shoal.core.jobs import GroupRecord, JobBook
    from shoal.core.verifying import Verifier
    from shoal.core.views import Views
    from shoal.model.ids import TaskId

AVOID_S: Final = 5.0
"""How long a worker is avoided the first time; four times as long each time after."""

AVOID_MAX_S: Final = 600.0
AVOIDED_MAX: Final = 4_096


@final
class Suiting:
    """Keeps second runs apart from first ones, and results from those they check."""

    def __init__(
        self,
        book: JobBook,
        views: Views,
        holdings: Holdings,
        verifier: Verifier,
        heap: DeadlineHeap,
    ) -> None:
        self._book = book
        self._views = views
        self._holdings = holdings
        self._verifier = verifier
        # How often a worker did not start a task of a group; the oldest first.
        self._misses: dict[tuple[GroupId, NodeId], int] = {}
        self._avoided: dict[GroupId, dict[NodeId, None]] = {}
        self._ends: Deadlines[tuple[GroupId, NodeId]] = Deadlines(heap)

    def on_not_started(self, group: GroupId, worker: NodeId, now: float) -> None:
        """Avoid a worker that did not start what it took."""
        key = group, worker
        missed = self._misses.pop(key, 0)
        self._misses[key] = missed + 1
        self._avoided.setdefault(group, {})[worker] = None
        self._ends.set(key, now + min(AVOID_MAX_S, AVOID_S * 4.0 ** min(missed, 8)))
        if len(self._misses) > AVOIDED_MAX:
            oldest = next(iter(self._misses))
            del self._misses[oldest]
            self._ends.drop(oldest)
            self._trust_again(*oldest)

    def due(self, now: float) -> bool:
        """Try workers again that were avoided long enough; return whether any was."""
        over = self._ends.pop_due(now)
        for group, worker in over:
            self._trust_again(group, worker)
            if group not in self._book.groups:
                del self._misses[group, worker]
        return bool(over)

    def avoided(self, group: GroupRecord, shape: Shape) -> list[NodeId]:
        """Return the workers that did not start such a task, if another one could."""
        bad = self._avoided.get(group.id)
        if not bad:
            return []
        table = self._views.table
        asked = PlacedShape(shape.profile, shape.driver, shape.rtt_max_us)
        for node in table.nodes():
            if node not in bad and table.slots_if_idle(node, asked, 1):
                return list(bad)
        return []

    def _trust_again(self, group: GroupId, worker: NodeId) -> None:
        avoided = self._avoided.get(group)
        if avoided is not None:
            avoided.pop(worker, None)
            if not avoided:
                del self._avoided[group]

    def task_for(self, group: GroupRecord, worker: NodeId, now: float) -> TaskId | None:
        """Return the next waiting task that may run there: a straggler may not."""
        if worker in self._avoided.get(group.id, ()):
            job = self._book.jobs[group.job].job
            shape = shape_of(job, group.group.tasks[0], 0)
            if worker in self.avoided(group, shape):
                return None
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
        avoided = self.avoided(group, shape)
        if group.group.verify is None:
            return [*self._running_at(group), *avoided]
        nodes = self._views.table.nodes()
        idle = self._holdings.idle_at(shape)
        return [*self._verifier.barred(group, nodes, now), *idle, *avoided]

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
