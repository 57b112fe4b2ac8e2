"""What the host tells the call exchange, and what the exchange asks for.

Items come and go in batches: one fact for each frame or read of a socket, and never
one for each call.
"""

from __future__ import annotations

import msgspec

from shoal.core.calls.call_dispatcher import (
    BacklogTold,
    CallResult,
    CallsCame,
    StopsAsked,
)
from shoal.model.ids import Attempt, JobId, OwnerId, TaskId

# Events of interpreters that run here.


class LaneUp(msgspec.Struct, frozen=True):
    """An interpreter runs here and has connected."""

    attempt: Attempt
    task: TaskId


class LaneWrote(msgspec.Struct, frozen=True):
    """An interpreter here has written these items."""

    attempt: Attempt
    items: list[bytes]


class LaneSlowed(msgspec.Struct, frozen=True):
    """An interpreter here reads too slowly, or keeps up again."""

    attempt: Attempt
    slow: bool


class LaneDown(msgspec.Struct, frozen=True):
    """An interpreter here is over; what it wrote last may not have been taken yet."""

    attempt: Attempt


# Events of clients that call functions here.


class PoolOpened(msgspec.Struct, frozen=True):
    """A client wants a pool of interpreters of one kind.

    `functions` holds all functions of the client, as items, and grows with them.
    """

    pool: str
    owner: OwnerId  # of the client
    functions: dict[int, list[bytes]]
    lanes_max: int
    idle_s: float
    never_s: float = 15.0  # calls that no worker could run are refused after this


class PoolTold(msgspec.Struct, frozen=True):
    """A client has told one of its pools something."""

    pool: str
    told: CallsCame | BacklogTold | StopsAsked


class PoolSlowed(msgspec.Struct, frozen=True):
    """The client of a pool takes results too slowly, or keeps up again."""

    pool: str
    slow: bool


class PoolClosed(msgspec.Struct, frozen=True):
    """The client of a pool is gone."""

    pool: str


class LanesHired(msgspec.Struct, frozen=True):
    """A job is being submitted whose tasks are interpreters of a pool."""

    pool: str
    job: JobId
    tasks: tuple[TaskId, ...]


class LanesAccepted(msgspec.Struct, frozen=True):
    """The job of hired lanes was accepted: the scheduler knows its tasks now."""

    pool: str
    job: JobId
    tasks: tuple[TaskId, ...]


class LanesRefused(msgspec.Struct, frozen=True):
    """That job was refused, or could not be made: these interpreters never come."""

    pool: str
    count: int
    reason: str
    tasks: tuple[TaskId, ...] = ()


class JournalSynced(msgspec.Struct, frozen=True):
    """What the scheduler has recorded is on disk: ends of tasks may be acted on."""


CallEvent = (
    LaneUp
    | LaneWrote
    | LaneSlowed
    | LaneDown
    | PoolOpened
    | PoolTold
    | PoolSlowed
    | PoolClosed
    | LanesHired
    | LanesAccepted
    | LanesRefused
    | JournalSynced
)

# Effects.


class WriteLane(msgspec.Struct, frozen=True):
    """Write these items to an interpreter here."""

    attempt: Attempt
    items: list[bytes]


class PauseLane(msgspec.Struct, frozen=True):
    """Read no more of an interpreter here, or read again."""

    attempt: Attempt
    paused: bool


class AnswerCalls(msgspec.Struct, frozen=True):
    """Give the client of a pool these results."""

    pool: str
    results: list[CallResult]


class TellPool(msgspec.Struct, frozen=True):
    """Tell the client of a pool how many calls it may have out, and of its lanes."""

    pool: str
    credit: int
    lanes: int
    hired: int


class HireLanes(msgspec.Struct, frozen=True):
    """Submit a job that adds `count` interpreters to a pool.

    Answered by `LanesHired` and `LanesAccepted`, or by `LanesRefused`.
    """

    pool: str
    count: int


class CancelLanes(msgspec.Struct, frozen=True):
    """Cancel jobs of interpreters: their client is gone."""

    jobs: tuple[JobId, ...]


CallEffect = WriteLane | PauseLane | AnswerCalls | TellPool | HireLanes | CancelLanes
