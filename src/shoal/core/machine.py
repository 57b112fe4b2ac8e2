"""What every machine of a node looks like to the rack that it is mounted in.

A machine takes in one fact and returns what to do about it. It does no input or output
and has no clock. Beside its state it says, once and for all, what it is for: a `Mount`.
`core.peer.Peer` reads that and needs to know nothing else about the machine, so a new
feature is a new machine, and not another branch in somebody else's code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

import msgspec

from shoal.protocol.messages import Role

if TYPE_CHECKING:
    from shoal.core.events import Effect, Event


class Mount(msgspec.Struct, frozen=True, kw_only=True):
    """Which messages, facts and effects a machine is there for.

    A fact that some machine `hears` goes to the machines that hear it, and to no other.
    A fact that nobody names, such as `PeerLost`, goes to all of them.
    """

    takes: Mapping[type, Role | None] = {}  # messages; what role a sender must have
    from_strangers: tuple[type, ...] = ()  # messages that nobody needs a grant for
    hears: tuple[type, ...] = ()  # facts that are for such machines alone
    claims: tuple[type, ...] = ()  # effects of others that it decides about


class Decider(Protocol):
    """What a host runs: facts in, effects out."""

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take in one fact; return what to do about it, in order. Raising is a bug."""
        ...

    def next_deadline(self) -> float | None:
        """When to deliver `DeadlineReached`, if ever."""
        ...


class Machine(Decider, Protocol):
    """A part of a node that decides, and that a rack can mount."""

    mount: Mount


class Claimant(Machine, Protocol):
    """A machine whose mount claims effects."""

    def claimed(self, effect: Effect, now: float) -> list[Effect]:
        """Return what to do instead of an effect that a machine asked for.

        An answer that holds the effect itself lets it leave the node as it is.
        """
        ...
