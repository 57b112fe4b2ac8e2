"""Which waiting task of a group may run on a worker, and which workers not to ask.

A worker may accept a task and then not start it, because it is broken or lies. While
another worker could run the task, that one gets no task of its group, for longer each
time. Otherwise it would be the first to have room again, and one bad worker would fail
everybody's jobs. A second run stays off the worker of the first, and a verified task
off owners that answered it already (`verification.verifier`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from shoal.core.deadlines import DeadlineHeap, Deadlines
from shoal.core.negotiation.held_leases import shape_of
from shoal.model.backoff import Backoff
from shoal.model.ids import GroupId, NodeId

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.core.discovery.worker_views import WorkerViews
    from shoal.core.negotiation.held_leases import HeldLeases, LeaseShape
    from shoal.core.records.records import GroupRecord
    from shoal.core.scheduling.job_book import JobBook
    from shoal.core.verification.verifier import Verifier
    from shoal.model.ids import TaskId

AVOID: Final = Backoff(5.0, 600.0, factor=4.0)
"""How long a worker is avoided, by how often it did not start a task."""

AVOIDED_MAX: Final = 4_096


@final
class TaskSelection:
    """Chooses tasks for workers, and knows which workers to avoid."""

    def __init__(
        self,
        book: JobBook,
        views: WorkerViews,
        holdings: HeldLeases,
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
        """Avoid a worker for a group of which it did not start a task."""
        key = group, worker
        missed = self._misses.pop(key, 0)
        self._misses[key] = missed + 1
        self._avoided.setdefault(group, {})[worker] = None
        self._ends.set(key, now + AVOID.pause_s(missed))
        if len(self._misses) > AVOIDED_MAX:
            oldest = next(iter(self._misses))
            del self._misses[oldest]
            self._ends.drop(oldest)
            self._trust_again(*oldest)

    def due(self, now: float) -> bool:
        """Trust workers again that were avoided long enough; return whether any is."""
        over = self._ends.pop_due(now)
        for group, worker in over:
            self._trust_again(group, worker)
            if group not in self._book.groups:
                del self._misses[group, worker]
        return bool(over)

    def avoided(self, group: GroupRecord, shape: LeaseShape) -> list[NodeId]:
        """Return the workers to avoid for a group, if another one could run it."""
        bad = self._avoided.get(group.id)
        if not bad:
            return []
        table = self._views.table
        for node in table.nodes():
            if node not in bad and table.slots_if_idle(node, shape.asked, 1):
                return list(bad)
        return []

    def _trust_again(self, group: GroupId, worker: NodeId) -> None:
        avoided = self._avoided.get(group)
        if avoided is not None:
            avoided.pop(worker, None)
            if not avoided:
                del self._avoided[group]

    def task_for(self, group: GroupRecord, worker: NodeId, now: float) -> TaskId | None:
        """Return the next waiting task of a group that may run on a worker."""
        if worker in self._avoided.get(group.id, ()):
            job = self._book.jobs[group.job].job
            shape = shape_of(job, group.group.tasks[0], 0)
            if worker in self.avoided(group, shape):
                return None
        if group.group.tasks[0].alone and worker in self._taken_by(group):
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

    def unsuited(
        self, group: GroupRecord, shape: LeaseShape, now: float
    ) -> list[NodeId]:
        """Return the workers not to ask for slots of this group.

        If a slot of this shape is idle at a worker, then no waiting task may run there.
        """
        avoided = self.avoided(group, shape)
        if shape.alone:
            idle = self._holdings.idle_at(shape)
            return [*self._taken_by(group), *idle, *avoided]
        if group.group.verify is None:
            return [*self._running_at(group), *avoided]
        nodes = self._views.table.nodes()
        idle = self._holdings.idle_at(shape)
        return [*self._verifier.barred(group, nodes, now), *idle, *avoided]

    def shunned(self, now: float) -> Sequence[NodeId]:
        """Return the workers that get a task only if no other has room."""
        owners = self._book.standings.shunned(self._book.wall_s(now))
        if not owners:
            return ()
        whose = self._verifier.owners(self._views.table.nodes(), now)
        return [node for node, owner in whose.items() if owner in owners]

    def _taken_by(self, group: GroupRecord) -> list[NodeId]:
        """Return the workers that run a task of a group."""
        return [run.worker for run in self._book.live_in(group)]

    def _running_at(self, group: GroupRecord) -> list[NodeId]:
        """Return the workers on which the stragglers of a group run."""
        return [
            run.worker
            for task in group.seconds
            for run in self._book.tasks[task].live.values()
        ]
