"""What a scheduler gives with an assignment: sealed secrets, and the last checkpoint.

Theory of operation. A worker says by `Checkpoint` that a running attempt can go on
from a tree. The host is asked to fetch it; a newer one of the same task takes its
place. When all of the tree is here (`CheckpointKept`), every later attempt of the task
gets it. The host remembers checkpoints on disk and tells them again when the node
starts.

A verified task never goes on from what another worker left: two results that begin with
the same lie would agree.

Secrets are those of this node's own user. They are sealed to the worker, for one
attempt, as an assignment leaves, so they are in no journal. A job of another owner gets
none, however it came here; its worker says so.

Both tables are bounded by `TASKS_MAX`; the oldest go first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar, final

import msgspec

from shoal.core.artifacts.events import CheckpointKept, FetchCheckpoint
from shoal.model.ids import Attempt, BlobId, NodeId

if TYPE_CHECKING:
    from shoal.core.dispatch.run_states import TaskRun
    from shoal.core.scheduling.job_book import JobBook
    from shoal.model.ids import OwnerId, TaskId
    from shoal.model.job import Task
    from shoal.protocol.messages import Checkpoint, Grant

TASKS_MAX: Final = 10_000

Seal: TypeAlias = Callable[[NodeId, Attempt, tuple[str, ...]], dict[str, bytes]]
"""Seals secrets to a worker, for one attempt, without those that nobody knows."""

T = TypeVar("T")


class Provision(msgspec.Struct, frozen=True):
    """What one assignment takes along."""

    checkpoint: BlobId = BlobId("")
    checkpoint_path: str = ""
    secrets: dict[str, bytes] = {}


NOTHING: Final = Provision()


def seal_nothing(
    _worker: NodeId, _attempt: Attempt, _names: tuple[str, ...]
) -> dict[str, bytes]:
    """Give no secret to anybody."""
    return {}


@final
class Provisions:
    """The checkpoints of this scheduler's tasks, and who gets secrets."""

    def __init__(self, book: JobBook, grant: Grant | None, seal: Seal) -> None:
        """Give secrets to tasks of the owner of `grant`, this node's own."""
        self._book = book
        self._owner: OwnerId | None = None if grant is None else grant.owner
        self._seal = seal
        self._newest: dict[TaskId, tuple[Attempt, int]] = {}
        self._kept: dict[TaskId, CheckpointKept] = {}

    def on_checkpoint(self, run: TaskRun, told: Checkpoint) -> list[FetchCheckpoint]:
        """Have a checkpoint of a live attempt fetched, if it is the newest."""
        if self._book.group_of(run.task).group.verify is not None:
            return []
        order = (told.attempt, told.seq)
        if order <= self._newest.get(run.task, (told.attempt, -1)):
            return []
        _remember(self._newest, run.task, order)
        return [FetchCheckpoint(run.task, run.worker, told.tree, told.path)]

    def on_kept(self, event: CheckpointKept) -> None:
        """Give later attempts of a task a checkpoint that is here."""
        _remember(self._kept, event.task, event)

    def of(self, run: TaskRun, task: Task) -> Provision:
        """Return what an assignment takes along."""
        kept, names = self._kept.get(task.id), task.work.secrets
        if kept is None and not names:
            return NOTHING
        is_own = self._book.jobs[task.job].job.owner == self._owner
        return Provision(
            BlobId("") if kept is None else kept.tree,
            "" if kept is None else kept.path,
            self._seal(run.worker, run.attempt, names) if names and is_own else {},
        )


def _remember(table: dict[TaskId, T], task: TaskId, value: T) -> None:
    table.pop(task, None)
    table[task] = value
    if len(table) > TASKS_MAX:
        del table[next(iter(table))]
