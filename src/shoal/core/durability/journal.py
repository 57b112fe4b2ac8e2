"""Journal entries: what a node must remember through a crash. Replay restores it.

Times are wall-clock times, because they outlive the process that wrote them. Tags are a
file format: never rename or reuse one; a new field has a default.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from shoal.core.allocation.records import AllocationKept
from shoal.errors import StoreError
from shoal.model.ids import (
    Attempt,
    BlobId,
    GroupId,
    JobId,
    LeaseId,
    NodeId,
    OwnerId,
    TaskId,
)
from shoal.model.job import Job, TaskState
from shoal.protocol.messages import Outcome, Revocation


class Incarnated(msgspec.Struct, frozen=True, tag="incarnated"):
    """The scheduler uses this generation from now on; it was never used before."""

    generation: int
    numbered: int = 0  # jobs were given numbers up to this before, if it is not 0


class Parent(msgspec.Struct, frozen=True, omit_defaults=True):
    """The task that submitted a job."""

    task: TaskId
    line: tuple[Attempt, ...]  # that task's attempt last, after those of its ancestors
    detached: bool = False  # the job goes on when that attempt ends


class Submitted(msgspec.Struct, frozen=True, tag="submitted"):
    """This job was accepted; this scheduler brings it to an end."""

    job: Job
    wall_s: float
    quota_gpus: int | None = None
    quota_cpu_milli: int | None = None
    number: int = 0  # counts the jobs of this scheduler; 0 in journals before it did
    by: NodeId = NodeId("")  # whose grant it was submitted by, if not our own
    serial: int = 0  # of that grant
    parent: Parent | None = None  # if a task submitted it
    members: tuple[NodeId, ...] = ()  # who keeps it, this scheduler first
    forwards: int = 0  # how often another scheduler had it before


class AttemptPlace(msgspec.Struct, frozen=True, omit_defaults=True):
    """One attempt and its worker and lease."""

    task: TaskId
    attempt: Attempt
    worker: NodeId
    lease: LeaseId
    profile: int = 0  # which of the task's alternatives
    owner: OwnerId = OwnerId("")  # of the worker, if results are verified


class Assigned(msgspec.Struct, frozen=True, tag="assigned"):
    """These attempts may run from now on. A gang is one entry: all or nothing."""

    places: tuple[AttemptPlace, ...]
    wall_s: float = 0.0  # when; 0 in journals that did not say


class Exited(msgspec.Struct, frozen=True, tag="exited"):
    """This member of a gang succeeded; it is done when the rest of the gang is."""

    task: TaskId
    attempt: Attempt
    outcome: Outcome


class AnswerKept(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one attempt of a verified task ended with, to be compared with others."""

    attempt: Attempt
    worker: NodeId
    owner: OwnerId
    outcome: Outcome
    number: int = 0  # counts the answers of this scheduler


class Answered(msgspec.Struct, frozen=True, tag="answered"):
    """This answer came; the task ends when enough of them agree."""

    task: TaskId
    answer: AnswerKept


class Judged(msgspec.Struct, frozen=True, tag="judged"):
    """A result of this worker was compared with others, or `believed` unseen."""

    task: TaskId
    owner: OwnerId
    worker: NodeId
    verdict: Literal["agreed", "disagreed", "failed", "believed"]
    wall_s: float = 0.0


class StandingKept(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="standing-kept"
):
    """How an owner stood when the journal was compacted, as of `standing.Standing`.

    Of each of its workers: how often it was judged, and how often it disagreed.
    """

    owner: OwnerId
    in_row: int = 0
    believed: int = 0
    failures: int = 0
    offences: int = 0
    shunned_until_s: float = 0.0
    workers: tuple[tuple[NodeId, int, int], ...] = ()


class Returned(msgspec.Struct, frozen=True, tag="returned"):
    """This attempt is over without a result; its task waits again.

    The counters are the task's after this. It was `moved` if its gang has a better
    place; the reason says where and why.
    """

    task: TaskId
    attempt: Attempt
    failures: int
    crashes: int
    reason: str = ""
    moved: bool = False


class RetriesRenewed(msgspec.Struct, frozen=True, tag="retries-renewed"):
    """A new checkpoint of this task is kept: its failures are counted anew.

    So are those of its job's gangs, which work on the same.
    """

    task: TaskId


class Finished(msgspec.Struct, frozen=True, tag="finished"):
    """The one end of this task."""

    task: TaskId
    state: TaskState
    attempt: Attempt | None = None
    outcome: Outcome | None = None
    reason: str = ""
    wall_s: float = 0.0  # as of `Assigned`


class Cancelled(msgspec.Struct, frozen=True, tag="cancelled"):
    """The user cancelled this job: what has not ended, ends so."""

    job: JobId
    reason: str = ""
    wall_s: float = 0.0  # as of `Assigned`


class Removed(msgspec.Struct, frozen=True, tag="removed"):
    """These ended jobs are forgotten, with their files."""

    jobs: tuple[JobId, ...]


class Revoked(msgspec.Struct, frozen=True, tag="revoked"):
    """Grants are void from now on, in every later life too."""

    revocation: Revocation


class EndCalled(msgspec.Struct, frozen=True, tag="end-called"):
    """What this ended job names was called, or given up for this reason."""

    job: JobId
    trouble: str = ""


class DrainSet(msgspec.Struct, frozen=True, tag="drain-set"):
    """The worker of this node takes no new tasks from now on, or takes them again."""

    on: bool


class ScheduleMoved(msgspec.Struct, frozen=True, tag="schedule-moved"):
    """All runs of this schedule up to a time are settled: started, or skipped."""

    schedule: JobId
    settled_s: float  # since 1970
    runs: int  # how many were started so far
    last: JobId = JobId("")  # the latest run
    skipped: str = ""  # why the run that was due then was not started


class Led(msgspec.Struct, frozen=True, tag="led"):
    """This node schedules a kept job in this term from now on.

    The entries are the job's log as it was kept here; none if the job was ours before.
    `alone` says that the job was forwarded here, and that nobody keeps it.
    """

    job: JobId
    term: int
    entries: tuple[bytes, ...] = ()
    alone: bool = False


class Adopted(msgspec.Struct, frozen=True, tag="adopted"):
    """These attempts of an earlier scheduler have new names, and are ours."""

    job: JobId
    names: tuple[tuple[Attempt, Attempt], ...]


class Ceded(msgspec.Struct, frozen=True, tag="ceded"):
    """Another node schedules this job in this term: it is not ours any more.

    `forwarded` says that it may do so without any other.
    """

    job: JobId
    to: NodeId
    term: int
    forwarded: bool = False


class JobKept(msgspec.Struct, frozen=True, tag="job-kept"):
    """This node keeps these entries of a job of another scheduler.

    They follow on the first `start` entries that the leader of this term has sent; the
    log is whole from `base` entries on.
    """

    job: JobId
    term: int
    leader: NodeId
    members: tuple[NodeId, ...]
    base: int
    start: int
    entries: tuple[bytes, ...] = ()
    forward: bool = False  # to be scheduled here alone, once its scheduler lets us


class Vowed(msgspec.Struct, frozen=True, tag="vowed"):
    """This node promised a term of a kept job to a candidate, and to no other."""

    job: JobId
    term: int
    candidate: NodeId


class KeptOver(msgspec.Struct, frozen=True, tag="kept-over"):
    """This job has ended, and most of its members know: nobody need keep it."""

    job: JobId
    at: NodeId = NodeId("")  # who scheduled it to its end, if it was another node


class TreeHad(msgspec.Struct, frozen=True, tag="tree-had"):
    """All of this tree of a job that is kept here is on this node's disk."""

    job: JobId
    tree: BlobId


class SecretsSealed(msgspec.Struct, frozen=True, tag="secrets-sealed"):
    """The secrets of a kept job, which only this member of it can open."""

    job: JobId
    member: NodeId
    secrets: dict[str, bytes]


class Saved(msgspec.Struct, frozen=True, tag="saved"):
    """This checkpoint of a task of a kept job is on its scheduler's disk."""

    task: TaskId
    tree: BlobId
    path: str = ""


class UsageRow(msgspec.Struct, frozen=True, array_like=True):
    """What attempts took on one day: CPU and GPU time in thousandths of a second.

    `used` by our jobs at this worker, or `lent` here to this scheduler.
    """

    kind: Literal["used", "lent"]
    owner: OwnerId  # of the job
    node: NodeId
    day: int  # since 1970, of UTC
    job: JobId  # empty once it was summed up
    name: str  # of the job
    cpu_milli_s: int
    gpu_milli_s: int


class UsageAdded(msgspec.Struct, frozen=True, tag="usage-added"):
    """So much more was used; the sum of all such entries is what was used."""

    rows: tuple[UsageRow, ...]


class NeedRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The most that work of this kind took at once, and of any one GPU."""

    kind: str  # a hash of what runs
    memory_bytes: int
    gpu_memory_bytes: int = 0


class NeedsKept(msgspec.Struct, frozen=True, tag="needs-kept"):
    """Work took so much. What a later entry says of the same kind is added."""

    rows: tuple[NeedRow, ...]


class RunKept(msgspec.Struct, frozen=True, tag="run-kept"):
    """This attempt was live when the journal was compacted."""

    place: AttemptPlace
    gang: tuple[NodeId, ...] = ()  # where each rank runs, if it is one of a gang


class TaskKept(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="task-kept"
):
    """What had become of this task when the journal was compacted.

    It stands for all entries about the task before that; its live attempts have
    entries of their own, which come first.
    """

    task: TaskId
    end: TaskState | None = None  # None: it had not ended
    failures: int = 0
    crashes: int = 0
    attempts: int = 0
    reason: str = ""
    outcome: Outcome | None = None
    exited: Attempt | None = None  # succeeded, while its gang went on
    worker: NodeId = NodeId("")  # where it ran last
    began_wall_s: float = 0.0
    ended_wall_s: float = 0.0
    answers: tuple[AnswerKept, ...] = ()  # if it is verified
    moves: int = 0
    moved: str = ""  # why it moved last


class ArrayKept(msgspec.Struct, frozen=True, kw_only=True, tag="array-kept"):
    """What had become of tasks of a large array when the journal was compacted.

    Of each task from place `start` on, `rows` says which of the `kinds` it is (-1: of
    none, nothing is known of it); the rest is a column each, in the order of this
    machine's bytes.
    """

    group: GroupId
    start: int
    kinds: tuple[bytes, ...]
    rows: bytes
    began_s: bytes
    ended_s: bytes
    memory: bytes


class ArrayWaits(msgspec.Struct, frozen=True, tag="array-waits"):
    """These tasks of a large array, by their places, want a slot again, in order."""

    group: GroupId
    places: tuple[int, ...]


class RestEnded(msgspec.Struct, frozen=True, tag="rest-ended"):
    """All tasks of this large array that had not ended, ended so."""

    group: GroupId
    state: TaskState
    reason: str = ""
    wall_s: float = 0.0


KeepingEntry = (
    Led | Adopted | Ceded | JobKept | Vowed | KeptOver | TreeHad | SecretsSealed | Saved
)
"""What is remembered of jobs that several nodes keep."""

ArrayEntry = ArrayKept | ArrayWaits | RestEnded
"""What is remembered of the tasks of large arrays."""

BookEntry = (
    Incarnated
    | Submitted
    | Assigned
    | Exited
    | Returned
    | RetriesRenewed
    | Finished
    | Cancelled
    | Revoked
    | Removed
    | UsageAdded
    | NeedsKept
    | DrainSet
    | AllocationKept
    | EndCalled
    | ScheduleMoved
    | RunKept
    | TaskKept
    | ArrayEntry
    | Answered
    | Judged
    | StandingKept
)
Entry = BookEntry | KeepingEntry

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final[msgspec.msgpack.Decoder[Entry]] = msgspec.msgpack.Decoder(Entry)


def encode(entry: Entry) -> tuple[str, bytes]:
    """Return the kind of an entry, which is its tag, and its bytes."""
    return str(entry.__struct_config__.tag), _ENCODER.encode(entry)


def decode(payload: bytes) -> Entry:
    """Return the entry that was encoded; a `StoreError` says why there is none."""
    try:
        return _DECODER.decode(payload)
    except msgspec.MsgspecError as error:
        raise StoreError(
            f"an entry of the journal, {len(payload)} bytes, cannot be understood",
            kind="newer",
            because=str(error),
            hint="a newer shoal wrote it: start that one",
        ) from error
