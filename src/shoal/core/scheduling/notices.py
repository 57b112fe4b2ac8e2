"""What the parts of a scheduler tell it, as values.

A part never calls another to say what happened, and keeps no list for others to look
into. It returns *consequences*: effects, which the host performs, and notices, which
the scheduler applies in one loop (`Scheduler.handle`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec

from shoal.core.events import Effect

if TYPE_CHECKING:
    from shoal.core.durability.journal import Led, Saved
    from shoal.core.negotiation.held_leases import HeldLease
    from shoal.core.negotiation.negotiator import GangRound, Wish
    from shoal.model.ids import GroupId, JobId, NodeId


class PartNotice(msgspec.Struct, frozen=True):
    """Base of all notices."""


class Won(PartNotice, frozen=True):
    """A lease for an independent task is committed."""

    lease: HeldLease


class GangReady(PartNotice, frozen=True):
    """All leases of a gang are committed: it can start."""

    round: GangRound


class GangFailed(PartNotice, frozen=True):
    """A gang could not get all its leases, and holds none any more."""

    round: GangRound


class Refused(PartNotice, frozen=True):
    """A worker will not offer what it was asked for."""

    worker: NodeId
    wish: Wish
    reason: str


class Freed(PartNotice, frozen=True):
    """Nothing runs or waits on a lease any more."""

    lease: HeldLease


class NeedChanged(PartNotice, frozen=True):
    """A group may need more or fewer slots than before."""

    group: GroupId


class NotStarted(PartNotice, frozen=True):
    """A worker accepted a task of a group, and did not start it."""

    group: GroupId
    worker: NodeId


class RoomChanged(PartNotice, frozen=True):
    """There may be room where there was none: another pass may help."""


class TakenUp(PartNotice, frozen=True):
    """A job that was kept here is this scheduler's own from now on."""

    led: Led


class SavedElsewhere(PartNotice, frozen=True):
    """A task of a job that is kept here has a checkpoint, at the job's scheduler."""

    saved: Saved
    leader: NodeId


class Released(PartNotice, frozen=True):
    """Another scheduler has a job of ours: nothing of it concerns this one any more."""

    job: JobId


Notice: TypeAlias = (
    Won
    | GangReady
    | GangFailed
    | Refused
    | Freed
    | NeedChanged
    | NotStarted
    | RoomChanged
    | TakenUp
    | SavedElsewhere
    | Released
)
Consequence: TypeAlias = Effect | Notice
