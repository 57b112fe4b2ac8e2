"""What the host tells the channel machine, and what the machine asks for.

An end is called by a number: those that this node opens by numbers above 0, which the
host draws, and those that peers open by numbers below 0, which the machine draws.
"""

from __future__ import annotations

import msgspec

from shoal.core.membership.members import Admission
from shoal.model.ids import Attempt, NodeId
from shoal.protocol.channels.messages import ChannelOpen, ChannelUse

# Events.


class ChannelWanted(msgspec.Struct, frozen=True):
    """The host wants a channel: to an attempt at its worker, or to a job elsewhere."""

    end: int
    peer: NodeId
    use: ChannelUse
    attempt: Attempt | None = None
    job: str = ""
    task: str = ""


class ChannelWrote(msgspec.Struct, frozen=True):
    """The host has items for the other end. It waits while it is told to pause."""

    end: int
    items: tuple[bytes, ...]


class ChannelSlowed(msgspec.Struct, frozen=True):
    """What takes the items at this end became too slow for them, or fast enough."""

    end: int
    slow: bool


class ChannelFinished(msgspec.Struct, frozen=True):
    """The host needs its end no more; what it wrote is still to be taken."""

    end: int


class ChannelDropped(msgspec.Struct, frozen=True):
    """The host gives its end up; what it wrote does not matter."""

    end: int
    reason: str


class TaskOpened(msgspec.Struct, frozen=True):
    """An attempt runs here now, and its scheduler may open channels to it."""

    attempt: Attempt


class TaskClosed(msgspec.Struct, frozen=True):
    """No process of an attempt is left here."""

    attempt: Attempt


ChannelEvent = (
    ChannelWanted
    | ChannelWrote
    | ChannelSlowed
    | ChannelFinished
    | ChannelDropped
    | TaskOpened
    | TaskClosed
)

# Effects.


class ServeChannel(msgspec.Struct, frozen=True):
    """Do for a peer what its channel is for."""

    end: int
    caller: Admission
    asked: ChannelOpen


class DeliverItems(msgspec.Struct, frozen=True):
    """Give the host items of the other end, each once and in order."""

    end: int
    items: tuple[bytes, ...]


class PauseChannel(msgspec.Struct, frozen=True):
    """Write no more at this end until told to go on."""

    end: int
    paused: bool


class EndChannel(msgspec.Struct, frozen=True):
    """An end is gone, once and for all; empty: the other end had no more to say."""

    end: int
    reason: str


ChannelEffect = ServeChannel | DeliverItems | PauseChannel | EndChannel
