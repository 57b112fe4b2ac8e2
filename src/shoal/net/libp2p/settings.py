"""Settings of libp2p."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.model.ids import NodeId
    from shoal.protocol.messages import Grant, Hello


class RelayRoom(msgspec.Struct, frozen=True, kw_only=True):
    """What a gate relays at most. Who needs more opens another circuit, if it may."""

    members: int = 256  # for whom it keeps a place
    circuits: int = 32  # that lead to one of them
    circuits_from: int = 64  # that one member opens
    circuits_between: int = 4  # that one opens to another
    circuit_bytes: int = 4 << 30  # both ways
    circuit_s: int = 12 * 3_600


class Libp2pSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What does not change while a node runs. Addresses are multiaddrs as text."""

    shoal: str  # Nodes of different shoals never hear each other.
    listen: tuple[str, ...] = ("/ip4/0.0.0.0/tcp/4001",)  # Empty: only by relay.
    announce: tuple[str, ...] = ()  # Where others reach us, if not where we listen.
    direct: tuple[str, ...] = ()  # Where direct links are accepted.
    gates: tuple[str, ...] = ()  # Known from the start, each with /p2p/ and its id.
    is_gate: bool = False  # Relays for members that cannot be dialled.
    is_relayed: bool = False  # Asks gates to relay: it may not be dialled.
    relay: RelayRoom = RelayRoom()
    mdns: bool = False  # Says on the local network that we are here, and listens.


class Greeting(msgspec.Struct, frozen=True, kw_only=True):
    """How links begin.

    `admit` says why a peer that shows this grant is no member, or None if it is one;
    it is called on the event loop. `hello` is called in any thread.
    """

    hello: Callable[[], Hello]
    admit: Callable[[NodeId, Grant | None], str | None]
