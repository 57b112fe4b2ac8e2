"""What a node must remember through a crash. Replaying it gives the state back.

Points in time are of the wall clock here: they outlive the process that wrote them.
"""

from __future__ import annotations

import msgspec

from shoal.model.ids import Attempt, JobId, LeaseId, NodeId, TaskId
from shoal.model.job import Job, TaskState
from shoal.protocol.messages import Outcome, Revocation


class Incarnated(msgspec.Struct, frozen=True, tag="incarnated"):
    """The scheduler lives under this generation now; it was never used before."""

    generation: int


class Submitted(msgspec.Struct, frozen=True, tag="submitted"):
    """This job was accepted and is ours to bring to an end."""

    job: Job
    wall_s: float
    quota_gpus: int | None = None
    quota_cpu_milli: int | None = None


class Place(msgspec.Struct, frozen=True):
    """One attempt and where it may run."""

    task: TaskId
    attempt: Attempt
    worker: NodeId
    lease: LeaseId
    profile: int = 0  # which of the task's alternatives


class Assigned(msgspec.Struct, frozen=True, tag="assigned"):
    """These attempts may run from now on. A gang is one entry: all or none of it."""

    places: tuple[Place, ...]


class Exited(msgspec.Struct, frozen=True, tag="exited"):
    """This member of a gang succeeded; it is done when the rest of the gang is."""

    task: TaskId
    attempt: Attempt
    outcome: Outcome


class Returned(msgspec.Struct, frozen=True, tag="returned"):
    """This attempt is over without a result; its task waits again.

    The counters are the task's after this.
    """

    task: TaskId
    attempt: Attempt
    failures: int
    crashes: int
    reason: str = ""


class Finished(msgspec.Struct, frozen=True, tag="finished"):
    """The one end of this task."""

    task: TaskId
    state: TaskState
    attempt: Attempt | None = None
    outcome: Outcome | None = None
    reason: str = ""


class Cancelled(msgspec.Struct, frozen=True, tag="cancelled"):
    """The user cancelled this job: what has not ended, ends so."""

    job: JobId
    reason: str = ""


class Revoked(msgspec.Struct, frozen=True, tag="revoked"):
    """Grants are void from now on, in every later life too."""

    revocation: Revocation


Entry = (
    Incarnated
    | Submitted
    | Assigned
    | Exited
    | Returned
    | Finished
    | Cancelled
    | Revoked
)
