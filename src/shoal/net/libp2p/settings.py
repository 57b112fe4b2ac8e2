"""How a node takes part in the network of libp2p."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.model.ids import NodeId
    from shoal.protocol.messages import Grant, Hello


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What does not change while a node runs. Addresses are multiaddrs as text."""

    shoal: str  # Nodes of different shoals never hear each other.
    listen: tuple[str, ...] = ("/ip4/0.0.0.0/tcp/4001",)  # Empty: only by relay.
    announce: tuple[str, ...] = ()  # Where others reach us, if not where we listen.
    direct: tuple[str, ...] = ()  # Where direct links are accepted.
    gates: tuple[str, ...] = ()  # Known from the start, each with /p2p/ and its id.
    is_gate: bool = False  # Relays for members that cannot be dialled.
    is_relayed: bool = False  # Asks gates to relay: it may not be dialled.
    gossips: bool = True
    mdns: bool = False  # Says on the local network that we are here, and listens.


class Greeting(msgspec.Struct, frozen=True, kw_only=True):
    """How links begin.

    `admit` says why a peer that shows this grant is no member, or None if it is one;
    it is called on the event loop. `hello` is called in any thread.
    """

    hello: Callable[[], Hello]
    admit: Callable[[NodeId, Grant | None], str | None]
