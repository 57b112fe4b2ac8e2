"""Jobs that tasks submit: what they may have, and when they end.

Theory of operation. A task may submit jobs while its attempt is live. Such a job is a
*child*: a job of the same owner, with no more than its parent has. Its priority and its
quota are those of the parent at most; secrets, mounts, caches and a network it has only
if the parent has them; it runs on no node that the parent may not run on. It calls
nothing at its end and has no schedule, because both would outlive the task.

A child ends with the attempt that submitted it, however that ended: a retry begins with
a new attempt, and submits its own. One that is *detached* goes on. The attempts from
which a child descends are in its journal entry, so a restart forgets none of this.

A task that waits for its children keeps its room meanwhile. A child that would only fit
into that room could never start, so it is refused, unless it is detached.

Bounds: `CHILDREN_MAX` children of an attempt that have not ended, `DEPTH_MAX`
generations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.core.durability.journal import Parent, Submitted
from shoal.core.membership.quotas import narrowed_job
from shoal.core.negotiation.held_leases import shape_of
from shoal.model.kinds import uses_network
from shoal.policy.filters import FILTERS, idle

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shoal.core.discovery.worker_views import WorkerViews
    from shoal.core.dispatch.run_states import TaskRun
    from shoal.core.events import JobSubmitted
    from shoal.core.membership.members import Admission
    from shoal.core.records.records import JobRecord
    from shoal.core.scheduling.job_book import JobBook
    from shoal.model.ids import Attempt, JobId, NodeId
    from shoal.model.job import Job, Task, Work
    from shoal.model.resources import Profile
    from shoal.policy.table.task_shapes import TaskShape
    from shoal.policy.worker_view import WorkerView

CHILDREN_MAX: Final = 1_000
"""Children of one attempt that have not ended."""

DEPTH_MAX: Final = 8
"""Generations: a child of a child of a job that a user submitted has depth 2."""

OVER: Final = "the task does not run there for this node, or not any more"
FOREIGN: Final = (
    "the task runs on a machine of another owner, which could ask for anything in its "
    "name"
)


@final
class Children:
    """Decides what tasks may submit, and which of it ends with them."""

    def __init__(self, book: JobBook, views: WorkerViews) -> None:
        self._book = book
        self._views = views

    def refusal(self, worker: Admission, attempt: Attempt) -> str:
        """Return why a worker may not speak for an attempt; empty if it may.

        The worker sees all that the task sees. So it must belong to the owner of the
        job, who would otherwise let others submit jobs.
        """
        run = self._book.runs.get(attempt)
        if run is None or run.worker != worker.node:
            return OVER
        return "" if self._is_of(run, worker) else FOREIGN

    def _is_of(self, run: TaskRun, worker: Admission) -> bool:
        """Whether a worker belongs to the owner of what it runs."""
        return self._book.job_of(run.task).job.owner == worker.owner

    def admit(
        self, event: JobSubmitted, attempt: Attempt, wall_s: float
    ) -> Submitted | str:
        """Return the entry of a child, with no more than its parent has, or why not."""
        run = self._book.runs.get(attempt)
        if run is None:
            return OVER
        parent = self._book.job_of(run.task)
        line = (*(parent.parent.line if parent.parent else ()), attempt)
        if len(line) > DEPTH_MAX:
            return f"it would be a child of {DEPTH_MAX} generations, which is the most"
        if self._open(attempt) >= CHILDREN_MAX:
            return f"{CHILDREN_MAX} jobs of this task have not ended, the most it may"
        if more := _more(event.job, parent.job, self._book.tasks[run.task].task):
            return f"{more}: a job of a task has no more than the task has"
        job = narrowed_job(_clamped(event.job, parent), parent.quota)
        if not event.detached and (starved := self._starved(job, line)):
            return starved
        return Submitted(
            job,
            wall_s,
            parent.quota_gpus,
            parent.quota_cpu_milli,
            by=parent.by,
            serial=parent.serial,
            parent=Parent(run.task, line, event.detached),
        )

    def orphans(self) -> list[tuple[JobId, str]]:
        """Return the jobs that end because their parents ended, with the reason."""
        left, self._book.left = self._book.left, []
        return [
            (job, f"its parent {record.parent.task} has ended")
            for attempt in left
            for job in self._book.children.pop(attempt, ())
            if (record := self._book.jobs.get(job)) is not None
            and record.parent is not None
            and self._ends(record)
        ]

    def recover(self) -> None:
        """Find the jobs whose parents ended before a crash."""
        children, runs = self._book.children, self._book.runs
        self._book.left = [attempt for attempt in children if attempt not in runs]

    def _ends(self, record: JobRecord) -> bool:
        """Whether a child whose parent has ended ends, too."""
        assert record.parent is not None
        return record.state == "active" and not record.parent.detached

    def _open(self, attempt: Attempt) -> int:
        """Count the children of an attempt that have not ended; forget the others."""
        jobs = self._book.jobs
        children = [
            job
            for job in self._book.children.get(attempt, ())
            if (record := jobs.get(job)) is not None and record.state == "active"
        ]
        if children:
            self._book.children[attempt] = children
        return len(children)

    def _starved(self, job: Job, line: tuple[Attempt, ...]) -> str:
        """Say that only the room of its ancestors would do for a job, if so."""
        held: dict[NodeId, list[Profile]] = {}
        for attempt in line:
            if (run := self._book.runs.get(attempt)) is not None:
                profile = self._book.tasks[run.task].task.profiles[run.profile]
                held.setdefault(run.worker, []).append(profile)
        for group in job.groups:
            if group.needs:
                continue
            task = group.tasks[0]
            shapes = [shape_of(job, task, n).asked for n in range(len(task.profiles))]
            if self._fits(shapes, {}) and not self._fits(shapes, held):
                parent = self._book.runs[line[-1]].task
                return (
                    f"it could never start: {parent}, which submits it, keeps the room "
                    "that it needs until it ends, and no other worker that is known "
                    "has as much; let one of them ask for less, or submit it detached"
                )
        return ""

    def _fits(
        self, shapes: Iterable[TaskShape], held: dict[NodeId, list[Profile]]
    ) -> bool:
        """Whether a worker could run one of these if only `held` were in use."""
        table = self._views.table
        for node in table.nodes():
            view = table.view(node)
            assert view is not None
            free = _used(idle(view), held.get(node, ()))
            for shape in shapes:
                if not any(each.reason(shape, free) for each in FILTERS):
                    return True
        return False


def _used(view: WorkerView, profiles: Iterable[Profile]) -> WorkerView:
    """Return a worker as it is while these run there."""
    ledger = view.ledger
    for profile in profiles:
        found = ledger.fit(profile)
        if not isinstance(found, str):
            ledger.take(found)
    devices = [device.id for device in view.capacity.devices]
    return msgspec.structs.replace(
        view,
        cpu_milli=ledger.cpu_milli,
        memory_bytes=ledger.memory_bytes,
        disk_bytes=ledger.disk_bytes,
        gpu_milli=tuple(ledger.milli[device] for device in devices),
        gpu_memory=tuple(ledger.gpu_memory[device] for device in devices),
    )


def _more(job: Job, parent: Job, by: Task) -> str:
    """Say what a job asks for that its parent does not have, if anything."""
    if job.on_end is not None:
        return "it has on_end"
    if job.schedule is not None:
        return "it has a schedule"
    if parent.nodes and not set(job.nodes) <= set(parent.nodes):
        return "it names nodes that its parent may not use"
    for task in job.models():
        if more := _more_work(task.work, by.work):
            return more
    return ""


def _more_work(work: Work, own: Work) -> str:
    for noun, wanted, had in (
        ("secret", work.secrets, own.secrets),
        ("mount", work.mounts, own.mounts),
        ("cache", work.caches, own.caches),
    ):
        for name in wanted:
            if name not in had:
                return f"it wants the {noun} '{name}'"
    if uses_network(work) and not uses_network(own):
        return "it wants a network"
    return ""


def _clamped(job: Job, parent: JobRecord) -> Job:
    """Return a job with the owner of its parent, and no better a rank."""
    of = parent.job
    return msgspec.structs.replace(
        job,
        owner=of.owner,
        priority=min(job.priority, of.priority),
        preempt=job.preempt and of.preempt,
        preemptible=job.preemptible or of.preemptible,
        nodes=job.nodes or of.nodes,
    )
