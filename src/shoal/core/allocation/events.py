"""Facts and effects between the allocator, its users and the engines."""

from __future__ import annotations

from typing import Literal

import msgspec

from shoal.core.allocation.records import AllocationTerms

# Facts.


class AllocationAdded(msgspec.Struct, frozen=True):
    """A user allows this; answered by `AnswerAllocation`, once the engine was asked."""

    token: int
    terms: AllocationTerms


class AllocationChanged(msgspec.Struct, frozen=True):
    """A user pauses an allocation, resumes or removes it; answered likewise."""

    token: int
    name: str
    change: Literal["pause", "resume", "remove"]


class AllocationTried(msgspec.Struct, frozen=True):
    """The engine would take such a pilot, or says why it never will."""

    name: str
    refused: str = ""


class PilotSubmitted(msgspec.Struct, frozen=True):
    """The engine has taken a pilot, and calls it so."""

    name: str
    number: int
    native: str
    digest: bytes = b""  # of its invitation


class PilotRefused(msgspec.Struct, frozen=True):
    """The engine did not take a pilot. If it is `final`, it will take none like it."""

    name: str
    number: int
    reason: str
    final: bool = False


class SeenPilot(msgspec.Struct, frozen=True):
    """What an engine says of a pilot that it knows and that has not ended."""

    number: int
    native: str
    running: bool


class PilotsPolled(msgspec.Struct, frozen=True):
    """All pilots that the engine knows; or `trouble`: it did not say."""

    name: str
    poll: int  # which question this answers
    seen: tuple[SeenPilot, ...] = ()
    trouble: str = ""


# Effects.


class TryAllocation(msgspec.Struct, frozen=True):
    """Ask the engine whether it would take such a pilot; nothing is submitted."""

    terms: AllocationTerms


class SubmitPilot(msgspec.Struct, frozen=True):
    """Submit a pilot; answered by `PilotSubmitted` or `PilotRefused`, or by neither.

    Its name at the engine tells its number, so a poll finds it after a crash.
    """

    terms: AllocationTerms
    number: int


class PollPilots(msgspec.Struct, frozen=True):
    """Ask the engine for all pilots of an allocation; answered by `PilotsPolled`."""

    terms: AllocationTerms
    poll: int


class CancelPilot(msgspec.Struct, frozen=True):
    """End this job of the engine. Whether that worked, a later poll says."""

    terms: AllocationTerms
    native: str


class AnswerAllocation(msgspec.Struct, frozen=True):
    """Answer a user; `refused` says why not, or why an allocation is paused."""

    token: int
    refused: str = ""


AllocationEvent = (
    AllocationAdded
    | AllocationChanged
    | AllocationTried
    | PilotSubmitted
    | PilotRefused
    | PilotsPolled
)
AllocationEffect = (
    TryAllocation | SubmitPilot | PollPilots | CancelPilot | AnswerAllocation
)
