"""What a scheduler gives with an assignment: inputs, checkpoint and sealed secrets.

Theory of operation. A worker says by `Checkpoint` that a running attempt can go on
from a tree. The host is asked to fetch it. Of each task one is fetched at a time, and
of those that come meanwhile only the newest follows: a task that saves faster than its
link carries must not keep each fetch from its end. When all of the tree is here
(`CheckpointKept`), every later attempt of the task gets it; if it cannot be had
(`CheckpointMissed`), the last one serves. One that differs from the last is progress:
failures are counted anew from there. The host remembers checkpoints on disk and
tells them again when the node starts.

    Checkpoint --none under way--> FetchCheckpoint --kept, missed--> the one that waits
               --else------------> waits, in place of an older one

A verified task never goes on from what another worker left: two results that begin with
the same lie would agree.

Inputs are the outputs of the tasks that a task needs. A group is unblocked only when
all of those are done, and they are done only when their outputs are on this node's disk
(`result_intake`): so a step starts with all of them, or not at all, however many of
their workers have left since. Which tree goes where is in `model.inputs`.

Secrets are those of this node's own user. They are sealed to the worker, for one
attempt, as an assignment leaves, so they are in no journal. A job of another owner gets
none, however it came here; its worker says so. Those of a kept job are sealed to each
of its keepers when it is submitted; who takes it up opens its own and seals them anew.

Checkpoints of a kept job go to its keepers, too: its log names each that is here, and a
keeper fetches the newest of them as if it were the job's scheduler (`follow`).

All tables are bounded by `TASKS_MAX`; the oldest go first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar, final

import msgspec

from shoal.core.artifacts.events import (
    CheckpointKept,
    CheckpointMissed,
    FetchCheckpoint,
)
from shoal.core.durability.journal import Entry, Saved, SecretsSealed
from shoal.core.events import Record
from shoal.model.ids import Attempt, BlobId, JobId, NodeId
from shoal.model.inputs import inputs_from
from shoal.model.job import Input, TaskArray
from shoal.protocol.messages import ALL_OUTPUTS

if TYPE_CHECKING:
    from shoal.core.dispatch.run_states import TaskRun
    from shoal.core.records.records import TaskRecord
    from shoal.core.scheduling.job_book import JobBook
    from shoal.model.ids import OwnerId, TaskId
    from shoal.model.job import Job, Task
    from shoal.protocol.messages import Checkpoint, Grant

TASKS_MAX: Final = 10_000

Seal: TypeAlias = Callable[
    [NodeId, Attempt | JobId, tuple[str, ...], JobId, Mapping[str, bytes]],
    dict[str, bytes],
]
"""Seals secrets to a node, for an attempt or a job, without those that nobody knows.

Some of them may have been sealed to this node before, for a job that it kept.
"""

T = TypeVar("T")


class Provision(msgspec.Struct, frozen=True):
    """What one assignment takes along."""

    checkpoint: BlobId = BlobId("")
    checkpoint_path: str = ""
    secrets: dict[str, bytes] = {}
    inputs: tuple[Input, ...] = ()


NOTHING: Final = Provision()


def seal_nothing(
    _to: NodeId,
    _purpose: Attempt | JobId,
    _names: tuple[str, ...],
    _job: JobId,
    _inherited: Mapping[str, bytes],
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
        self._node = NodeId("") if grant is None else grant.node
        self._seal = seal
        self._newest: dict[TaskId, tuple[Attempt, int]] = {}
        self._kept: dict[TaskId, CheckpointKept] = {}
        self._fetching: dict[TaskId, None] = {}
        self._waiting: dict[TaskId, FetchCheckpoint] = {}  # for the fetch under way

    def on_checkpoint(self, run: TaskRun, told: Checkpoint) -> list[FetchCheckpoint]:
        """Have a checkpoint of a live attempt fetched, if it is the newest.

        It waits while an older one of the task is on its way.
        """
        if self._book.group_of(run.task).group.verify is not None:
            return []
        order = (told.attempt, told.seq)
        if order <= self._newest.get(run.task, (told.attempt, -1)):
            return []
        _remember(self._newest, run.task, order)
        fetch = FetchCheckpoint(run.task, run.worker, told.tree, told.path)
        if run.task in self._fetching:
            _remember(self._waiting, run.task, fetch)
            return []
        _remember(self._fetching, run.task, None)
        return [fetch]

    def follow(self, saved: Saved, leader: NodeId) -> list[FetchCheckpoint]:
        """Have a checkpoint of a task fetched whose job is kept here."""
        fetch = FetchCheckpoint(saved.task, leader, saved.tree, saved.path)
        if saved.task in self._fetching:
            _remember(self._waiting, saved.task, fetch)
            return []
        _remember(self._fetching, saved.task, None)
        return [fetch]

    def on_fetched(
        self, event: CheckpointKept | CheckpointMissed
    ) -> list[FetchCheckpoint | Record]:
        """Give later attempts of a task a checkpoint that is here; fetch the next."""
        effects: list[FetchCheckpoint | Record] = []
        if isinstance(event, CheckpointKept):
            before = self._kept.get(event.task)
            if event.task in self._fetching and event.task in self._book.tasks:
                is_new = before is None or before.tree != event.tree
                renewed = self._book.renew(event.task) if is_new else ()
                effects += [Record(entry) for entry in renewed]
                job = self._book.tasks[event.task].task.job
                if is_new and self._book.jobs[job].members:
                    effects.append(Record(Saved(event.task, event.tree, event.path)))
            _remember(self._kept, event.task, event)
        newer = self._waiting.pop(event.task, None)
        if newer is None:
            self._fetching.pop(event.task, None)
            return effects
        return [*effects, newer]

    def of(self, run: TaskRun, task: Task) -> Provision:
        """Return what an assignment takes along."""
        kept, names = self._kept.get(task.id), task.work.secrets
        inputs = self._inputs_of(task)
        if kept is None and not names and not inputs:
            return NOTHING
        return Provision(
            BlobId("") if kept is None else kept.tree,
            "" if kept is None else kept.path,
            self._sealed(run.worker, run.attempt, task.job, names),
            inputs,
        )

    def sealed_for(self, job: Job, members: tuple[NodeId, ...]) -> list[Entry]:
        """Return the secrets of a new job, sealed to each of its keepers."""
        names = tuple(dict.fromkeys(n for t in job.models() for n in t.work.secrets))
        entries: list[Entry] = []
        for member in members if names else ():
            if member != self._node:
                sealed = self._sealed(member, job.id, job.id, names)
                entry = SecretsSealed(job.id, member, sealed)
                self._book.jobs[job.id].sealed[member] = sealed
                entries.append(entry)
        return entries

    def _sealed(
        self, to: NodeId, purpose: Attempt | JobId, job: JobId, names: tuple[str, ...]
    ) -> dict[str, bytes]:
        record = self._book.jobs[job]
        if not names or record.job.owner != self._owner:
            return {}
        inherited = record.sealed.get(self._node, {})
        return self._seal(to, purpose, names, job, inherited)

    def _inputs_of(self, task: Task) -> tuple[Input, ...]:
        """Return the outputs of what a task needs, in the order of their laying."""
        group = self._book.groups[task.group].group
        if not group.needs or not group.takes_outputs:
            return group.inputs
        needed = [self._book.groups[id_].group for id_ in group.needs]
        needed = [
            each
            for each in needed
            if not isinstance(each.tasks, TaskArray) or each.tasks.first.work.outputs
        ]
        tasks = (self._book.tasks[each.id] for other in needed for each in other.tasks)
        left = {each.task.id: tree for each in tasks if (tree := _left_by(each))}
        return (*group.inputs, *inputs_from(needed, left))


def _left_by(record: TaskRecord) -> BlobId | None:
    """Return the outputs of a task that is done; a spared member of a gang is not."""
    if record.state != "done" or record.outcome is None:
        return None
    tree = record.outcome.outputs.get(ALL_OUTPUTS)
    return None if tree is None else BlobId(tree)


def _remember(table: dict[TaskId, T], task: TaskId, value: T) -> None:
    table.pop(task, None)
    table[task] = value
    if len(table) > TASKS_MAX:
        del table[next(iter(table))]
