"""Facts and effects about what travels with tasks: outputs, code and checkpoints.

Below them are those of the blobs that all of it is made of. What a host is asked to do
with the disk is answered by one fact each, in any order.
"""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

import msgspec

from shoal.model.ids import Attempt, BlobId, JobId, NodeId, TaskId
from shoal.model.job import Task, Verify
from shoal.protocol.blobs import PieceWanted
from shoal.protocol.messages import Outcome

# Events.


class OutputsFetched(msgspec.Struct, frozen=True):
    """All outputs of an attempt are on this node's disk.

    `digest` is made of what was fetched, if the results of the task are compared.
    """

    attempt: Attempt
    digest: str = ""


class OutputsLost(msgspec.Struct, frozen=True):
    """Fetching the outputs of an attempt failed for good."""

    attempt: Attempt
    reason: str


class CheckpointKept(msgspec.Struct, frozen=True):
    """All of this checkpoint of a task is on this node's disk."""

    task: TaskId
    tree: BlobId
    path: str = ""


class CheckpointMissed(msgspec.Struct, frozen=True):
    """A checkpoint of a task cannot be had: the last one serves."""

    task: TaskId


class KeptFetched(msgspec.Struct, frozen=True):
    """All of this tree of a job that is kept here is on this node's disk."""

    job: JobId
    tree: BlobId


class KeptMissed(msgspec.Struct, frozen=True):
    """A tree of a job that is kept here cannot be had now, for this reason."""

    job: JobId
    tree: BlobId
    reason: str = ""


class StagingEnded(msgspec.Struct, frozen=True):
    """Code, data and checkpoint of an attempt are in its folder, or never will be.

    Nothing runs yet. `reason` says what is missing; it is empty if nothing is.
    """

    attempt: Attempt
    reason: str = ""


class BlobWanted(msgspec.Struct, frozen=True):
    """A part of this node wants a blob, which these peers may have, the best first.

    `under` is a tree that names the blob. `lost_s` is how long to wait for peers to
    whom there is no link: without it as long as for any peer. Answered by
    `AnswerFetch`.
    """

    token: int
    blob: BlobId
    sources: tuple[NodeId, ...]
    under: BlobId = BlobId("")
    lost_s: float = math.inf


class TreeWanted(msgspec.Struct, frozen=True):
    """A part of this node wants a tree with all its files; answered by `AnswerFetch`.

    `tries` says how often, because a worker may be out of reach for a moment.
    """

    token: int
    tree: BlobId
    sources: tuple[NodeId, ...]
    tries: int = 1


class FetchDropped(msgspec.Struct, frozen=True):
    """Who wanted a blob or a tree wants it no more."""

    token: int


class RoomMade(msgspec.Struct, frozen=True):
    """The disk has room for a blob, or not, for this reason.

    `resumed`: an earlier life, or an earlier fetch, may have left some of it.
    """

    fetch: int
    blob: BlobId
    resumed: bool = False
    reason: str = ""


class PiecesStored(msgspec.Struct, frozen=True):
    """These pieces of level 0 are on disk, and these were not of the blob.

    `reason` says why the disk took none of them; it is empty if it did.
    """

    fetch: int
    stored: tuple[int, ...] = ()
    wrong: tuple[int, ...] = ()
    reason: str = ""


class PiecesFound(msgspec.Struct, frozen=True):
    """Of the pieces under one of level 1, these were on disk already."""

    fetch: int
    part: int
    indices: tuple[int, ...]


class BlobFinished(msgspec.Struct, frozen=True):
    """A whole blob is in the store, or could not be taken in, for this reason."""

    fetch: int
    reason: str = ""


class TreeRead(msgspec.Struct, frozen=True):
    """What a tree lists, and which of its files are not here.

    `reason` says why it lists nothing; `is_here` whether its bytes were there to read.
    """

    token: int
    tree: BlobId
    files: tuple[BlobId, ...] = ()
    missing: tuple[BlobId, ...] = ()
    is_here: bool = True
    reason: str = ""


class PiecesOf(msgspec.Struct, frozen=True):
    """What the disk has of one question: pieces, or the reason why there are none."""

    blob: BlobId
    pieces: tuple[tuple[int, int, bytes], ...] = ()  # level, index, bytes
    reason: str = ""


class PiecesRead(msgspec.Struct, frozen=True):
    """The disk has answered some questions of a peer."""

    peer: NodeId
    found: tuple[PiecesOf, ...]


class BlobGivenOut(msgspec.Struct, frozen=True):
    """A task published a blob: every member that knows its name may have it."""

    blob: BlobId


BlobEvent = (
    BlobWanted
    | TreeWanted
    | FetchDropped
    | RoomMade
    | PiecesStored
    | PiecesFound
    | BlobFinished
    | TreeRead
    | PiecesRead
    | BlobGivenOut
)

FetchEvent = (
    OutputsFetched
    | OutputsLost
    | CheckpointKept
    | CheckpointMissed
    | KeptFetched
    | KeptMissed
)
"""How something ended that a scheduler had fetched."""

ArtifactEvent = FetchEvent | StagingEnded | BlobEvent

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


class DropOutputs(msgspec.Struct, frozen=True):
    """Give up what `FetchOutputs` began, so that it is answered soon."""

    attempt: Attempt


class FetchCheckpoint(msgspec.Struct, frozen=True):
    """Fetch a checkpoint that a task left at its worker, and keep only this one.

    Answered by `CheckpointKept` or `CheckpointMissed`.
    """

    task: TaskId
    worker: NodeId
    tree: BlobId
    path: str = ""


TreeKind: TypeAlias = Literal["code", "outputs"]
"""What a tree of a job is: what its tasks need, or what they left."""


class FetchKept(msgspec.Struct, frozen=True):
    """Fetch a tree of a job of another scheduler, and hold it while that is kept here.

    Answered by `KeptFetched` or `KeptMissed`.
    """

    job: JobId
    tree: BlobId
    kind: TreeKind
    sources: tuple[NodeId, ...]


class DropKept(msgspec.Struct, frozen=True):
    """A job of another scheduler is over: hold nothing of it any more."""

    job: JobId


class MakeRoom(msgspec.Struct, frozen=True):
    """Make room on disk for a blob of several pieces; answered by `RoomMade`.

    `whose` is the peer that it is first asked of: none may fill all of the disk.
    """

    fetch: int
    blob: BlobId
    whose: NodeId


class StorePiece(msgspec.Struct, frozen=True):
    """Write a piece of level 0 if it has this hash; answered by `PiecesStored`.

    The blob of a single piece has no hash here: its name proves it.
    """

    fetch: int
    blob: BlobId
    index: int
    data: bytes
    leaf: bytes


class FindPieces(msgspec.Struct, frozen=True):
    """Find pieces with these hashes that are on disk; answered by `PiecesFound`."""

    fetch: int
    blob: BlobId
    part: int
    first: int
    leaves: bytes


class FinishBlob(msgspec.Struct, frozen=True):
    """Take a blob into the store, all of which is on disk; ends in `BlobFinished`."""

    fetch: int
    blob: BlobId
    leaves: bytes


class LeaveBlob(msgspec.Struct, frozen=True):
    """The fetch of this blob was abandoned; its pieces may be deleted."""

    blob: BlobId


class ReadTree(msgspec.Struct, frozen=True):
    """Read what a tree lists; answered by `TreeRead`."""

    token: int  # of who wants the tree with its files; 0: a peer wants a file of it
    tree: BlobId


class ReadPieces(msgspec.Struct, frozen=True):
    """Read what a peer asks for and may have; answered by `PiecesRead`."""

    peer: NodeId
    wanted: tuple[PieceWanted, ...]


class AnswerFetch(msgspec.Struct, frozen=True):
    """Tell who wanted a blob or tree that it is here, or why it cannot be had."""

    token: int
    reason: str = ""


BlobEffect = (
    MakeRoom
    | StorePiece
    | FindPieces
    | FinishBlob
    | LeaveBlob
    | ReadTree
    | ReadPieces
    | AnswerFetch
)

ArtifactEffect = (
    FetchOutputs | DropOutputs | FetchCheckpoint | FetchKept | DropKept | BlobEffect
)
