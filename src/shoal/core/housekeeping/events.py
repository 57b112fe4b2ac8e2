"""Events and effects of housekeeping."""

from __future__ import annotations

from typing import Literal

import msgspec

from shoal.model.ids import JobId, NodeId, OwnerId
from shoal.model.job import Job, JobState, OnEnd


class RemovalRequested(msgspec.Struct, frozen=True):
    """A client of this node wants an ended job forgotten, with all it left."""

    token: int
    job: JobId


class JobMeasured(msgspec.Struct, frozen=True):
    """The files of an ended job take so much of this node's disk."""

    job: JobId
    size_bytes: int


class MeteredRun(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt ran for so long, or for so much longer, with these amounts."""

    kind: Literal["used", "lent"]
    owner: OwnerId  # of the job
    node: NodeId  # the worker; if it was lent, the scheduler
    job: JobId
    name: str = ""
    spent_s: float
    cpu_milli: int
    gpu_milli: int


class RunsMetered(msgspec.Struct, frozen=True):
    """These attempts ran. Machines of this node tell each other."""

    runs: tuple[MeteredRun, ...]


class NeedSeen(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt that did its work took so much. Machines of a node tell each other."""

    kind: str  # of work; `past_needs` makes it
    owner: OwnerId  # of the job
    worker: NodeId
    memory_bytes: int
    gpu_memory_bytes: int = 0


class EndReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a webhook or a command is told about an ended job."""

    version: int = 1
    key: str  # the same for each call about this job: a repeated one can be told
    job: JobId
    name: str
    owner: OwnerId
    state: JobState
    reason: str
    exit_code: int | None
    submitted_s: float  # since 1970
    ended_s: float
    tasks: dict[str, int]  # how many ended in which state


class EndCallEnded(msgspec.Struct, frozen=True):
    """A call at the end of a job was made, or failed for this reason."""

    job: JobId
    trouble: str = ""


class CallEnd(msgspec.Struct, frozen=True):
    """Call what a job names for its end; answered by `EndCallEnded`."""

    on_end: OnEnd
    report: EndReport


class DropJob(msgspec.Struct, frozen=True):
    """Delete what is here of a job that was removed: output, results, checkpoints.

    Bytes that another job needs stay.
    """

    job: Job


HousekeepingEvent = (
    RemovalRequested | JobMeasured | RunsMetered | NeedSeen | EndCallEnded
)
HousekeepingEffect = DropJob | CallEnd
