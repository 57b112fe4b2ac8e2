"""What a node remembers of its allocations: their terms, and the pilots out there."""

from __future__ import annotations

from typing import Literal

import msgspec

from shoal.model.ids import NodeId
from shoal.model.resources import Capacity

PilotState = Literal["sent", "queued", "started", "joined"]
"""How far a pilot has come: handed to the engine, known to it, runs, is a worker."""


class AllocationTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What a user allows this node to ask of an engine."""

    name: str
    engine: str
    arguments: tuple[str, ...] = ()  # for the engine, as the user wrote them
    time_limit_s: float = 3_600.0  # of one pilot
    idle_s: float = 300.0  # a pilot without work leaves after this
    pilots_max: int = 1  # at one time
    backlog: int = 1  # of these, so many at most that have not joined
    shoal: str = ""  # how the command is called there; empty: as here


class Pilot(msgspec.Struct, frozen=True, kw_only=True):
    """One job of the engine, which is a worker once it has joined."""

    number: int
    state: PilotState = "sent"
    native: str = ""  # what the engine calls it
    digest: bytes = b""  # of the invitation that was made for it
    node: NodeId = NodeId("")  # once it has joined
    cancelled: bool = False


class Note(msgspec.Struct, frozen=True):
    """One line of an allocation's log."""

    wall_s: float
    text: str


class AllocationKept(
    msgspec.Struct, frozen=True, kw_only=True, tag="allocation-kept", omit_defaults=True
):
    """All that is known of one allocation; the latest entry of a name counts."""

    terms: AllocationTerms
    tried: bool = False  # the engine has agreed to the terms
    paused: str = ""  # why nothing is submitted; empty if it may be
    removed: bool = False  # it is forgotten once its pilots are gone
    numbered: int = 0  # pilots so far
    failures: int = 0  # pilots in a row that did not join
    pilots: tuple[Pilot, ...] = ()
    shape: Capacity | None = None  # what a pilot of it had
    notes: tuple[Note, ...] = ()  # the latest ones
