"""Facts and effects about what travels with tasks: outputs, code and checkpoints."""

from __future__ import annotations

import msgspec

from shoal.model.ids import Attempt, BlobId, NodeId, TaskId
from shoal.model.job import Task, Verify
from shoal.protocol.messages import Outcome

# Events.


class OutputsFetched(msgspec.Struct, frozen=True):
    """All outputs of an attempt are on this node's disk.

    `digest` is made of what was fetched, if the results of the task are compared.
    """

    attempt: Attempt
    digest: str = ""


class OutputsLost(msgspec.Struct, frozen=True):
    """The outputs of an attempt cannot be had, and nobody tries again."""

    attempt: Attempt
    reason: str


class CheckpointKept(msgspec.Struct, frozen=True):
    """All of this checkpoint of a task is on this node's disk."""

    task: TaskId
    tree: BlobId
    path: str = ""


class StagingEnded(msgspec.Struct, frozen=True):
    """Code, data and checkpoint of an attempt are in its folder, or never will be.

    Nothing runs yet. `reason` says what is missing; it is empty if nothing is.
    """

    attempt: Attempt
    reason: str = ""


ArtifactEvent = OutputsFetched | OutputsLost | CheckpointKept | StagingEnded

# Effects.


class FetchOutputs(msgspec.Struct, frozen=True):
    """Fetch what an attempt left at its worker.

    Answered by `OutputsFetched` or `OutputsLost`. With `verify` the result is compared:
    `earlier` has the trees of outputs of the same task by their digests, and a result
    that a command of the job finds to be the same gets the digest of that.
    """

    attempt: Attempt
    worker: NodeId
    task: Task
    outcome: Outcome
    verify: Verify | None = None
    earlier: dict[str, BlobId] = {}


class FetchCheckpoint(msgspec.Struct, frozen=True):
    """Fetch a checkpoint that a task left at its worker, and keep only this one.

    Answered by `CheckpointKept`, or by nothing: then the last one serves.
    """

    task: TaskId
    worker: NodeId
    tree: BlobId
    path: str = ""


ArtifactEffect = FetchOutputs | FetchCheckpoint
