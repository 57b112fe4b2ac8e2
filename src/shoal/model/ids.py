"""Ids. An id is a name, never authority: authority comes from a grant."""

from typing import Any, Final, NewType

import msgspec

from shoal.model.text.bounds import Count, IdText, Key, OwnerText

NodeId = NewType("NodeId", str)
"""One node, by the text form of its libp2p peer id."""

OwnerId = NewType("OwnerId", str)
"""The member that submitted a job, and is charged for it in the fair share."""

JobId = NewType("JobId", str)
JOB_ID_LENGTH_MAX: Final = 64

GroupId = NewType("GroupId", str)
"""Tasks of one job that are derived together: `job.name`."""

TaskId = NewType("TaskId", str)
"""One task: `job.group.index`."""

BlobId = NewType("BlobId", str)
"""Bytes, by their hash and their number: `HEX-SIZE`. Who knows it may have them."""

EnvironmentId = NewType("EnvironmentId", str)
"""What a worker makes for tasks of these owners, by its content. It never travels."""

LeaseId = NewType("LeaseId", str)
RequestId = NewType("RequestId", str)

# A type checker wants a class as the base of a NewType, msgspec wants the bound.
_KEYS: tuple[Any, ...] = (NodeId, JobId, GroupId, TaskId, BlobId)
for _id in _KEYS:
    _id.__supertype__ = Key
_NUMBERED: tuple[Any, ...] = (LeaseId, RequestId)
for _id in _NUMBERED:
    _id.__supertype__ = IdText
_owner: Any = OwnerId
_owner.__supertype__ = OwnerText


class Attempt(
    msgspec.Struct,
    frozen=True,
    array_like=True,
    order=True,
    gc=False,
    cache_hash=True,
):
    """One try of a task. Of two attempts of a scheduler the larger is the later.

    The generation is on the scheduler's disk before it is first used, so a
    restarted scheduler never gives out the same attempt twice.
    """

    scheduler: NodeId
    generation: Count
    sequence: Count

    def __str__(self) -> str:
        return f"{self.scheduler}:{self.generation}.{self.sequence}"
