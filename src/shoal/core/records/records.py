"""Jobs, groups and tasks, as the book of jobs knows them."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

import msgspec

from shoal.core.dispatch.run_states import TaskRun
from shoal.core.durability.journal import AnswerKept, EndCalled, Exited, Parent
from shoal.core.membership.quotas import Quota
from shoal.model.caches import marks_of
from shoal.model.ids import Attempt, GroupId, JobId, NodeId, TaskId
from shoal.model.job import ENDS, Group, Job, JobState, Task, TaskArray, TaskState
from shoal.protocol.messages import Outcome

if TYPE_CHECKING:
    from shoal.core.records.array_states import ArrayStates
    from shoal.core.records.waiting_tasks import WaitingTasks

ARRAY_TASKS: Final = 25
"""How many tasks of a large array take as much memory as one of another group."""

DONE_KEPT_MAX: Final = 10_000
"""The latest tasks of a group of which it is known how long they ran."""


class TaskRecord(msgspec.Struct, kw_only=True):
    """A task, its state, and its attempts so far."""

    task: Task
    state: TaskState = "waiting"
    failures: int = 0
    crashes: int = 0
    attempts: int = 0
    reason: str = ""
    outcome: Outcome | None = None
    worker: NodeId = NodeId("")  # where it runs, or ran last
    began_wall_s: float = 0.0  # when it was first assigned; 0 if nobody knows
    ended_wall_s: float = 0.0
    live: dict[Attempt, TaskRun] = msgspec.field(default_factory=dict[Attempt, TaskRun])
    answers: tuple[AnswerKept, ...] = ()  # in the order in which they came
    moves: int = 0  # how often its gang moved to a better place
    moved: str = ""  # why it moved last
    array: ArrayStates | None = None  # that it was taken from, if it is of a large one

    @property
    def ended(self) -> bool:
        """Whether nothing can change any more."""
        return self.state in ENDS


class GroupRecord(msgspec.Struct, kw_only=True):
    """A group of tasks that are alike.

    `waiting` holds the tasks that want a slot, in order; those also in `seconds` have
    an attempt or an answer already and want another. `exited` holds the members of a
    gang that succeeded while others still run.
    """

    group: Group
    job: JobId
    needs_open: int = 0  # groups it needs that have not ended
    open: int = 0  # tasks that have not ended
    live: int = 0  # runs of its tasks that have not ended
    waiting_since: float = 0.0
    served_at: float = float("-inf")  # when a task of it was last assigned
    waiting: dict[TaskId, None] | WaitingTasks = msgspec.field(
        default_factory=dict[TaskId, None]
    )
    array: ArrayStates | None = None  # if it is a large one
    seconds: dict[TaskId, None] = msgspec.field(default_factory=dict[TaskId, None])
    exited: dict[TaskId, Exited] = msgspec.field(default_factory=dict[TaskId, Exited])
    done_s: deque[float] = msgspec.field(
        default_factory=lambda: deque[float](maxlen=DONE_KEPT_MAX)
    )

    @property
    def id(self) -> GroupId:
        """The group's own id."""
        return self.group.id

    @property
    def is_gang(self) -> bool:
        """Whether its tasks start together."""
        return self.group.gang_min > 0

    @property
    def marks(self) -> tuple[str, ...]:
        """The marks of workers on which its tasks would begin soonest."""
        return marks_of(self.group.tasks[0].work)


class JobRecord(msgspec.Struct, kw_only=True):
    """A job; it is over when none of its groups is `open`."""

    job: Job
    submitted_at: float
    wall_s: float = 0.0  # when it was submitted, by the wall clock
    quota_gpus: int | None = None
    quota_cpu_milli: int | None = None
    number: int = 0  # the first job of this scheduler is 1
    open: int = 0
    state: JobState = "active"
    reason: str = ""
    called: EndCalled | None = None  # how the call at its end went
    by: NodeId = NodeId("")  # whose grant it was submitted by, if not our own
    serial: int = 0
    parent: Parent | None = None  # if a task submitted it
    forwards: int = 0  # how often another scheduler had it before
    members: tuple[NodeId, ...] = ()  # who keeps it, if it is kept
    term: int = 0  # in which it is scheduled, if it is kept
    sealed: dict[NodeId, dict[str, bytes]] = {}  # its secrets, for each of its keepers

    @property
    def quota(self) -> Quota:
        """How much its owner may have at one time."""
        return Quota(self.quota_gpus, self.quota_cpu_milli)


def cost_of(group: Group) -> int:
    """Return how many tasks of other groups would take as much memory as a group."""
    count = len(group.tasks)
    return -(-count // ARRAY_TASKS) if isinstance(group.tasks, TaskArray) else count
