"""Events and effects of housekeeping."""

from __future__ import annotations

import msgspec

from shoal.model.ids import JobId
from shoal.model.job import Job


class RemovalRequested(msgspec.Struct, frozen=True):
    """A client of this node wants an ended job forgotten, with all it left."""

    token: int
    job: JobId


class JobMeasured(msgspec.Struct, frozen=True):
    """The files of an ended job take so much of this node's disk."""

    job: JobId
    size_bytes: int


class DropJob(msgspec.Struct, frozen=True):
    """Delete what is here of a job that was removed: output, results, checkpoints.

    Bytes that another job needs stay.
    """

    job: Job


HousekeepingEvent = RemovalRequested | JobMeasured
HousekeepingEffect = DropJob
