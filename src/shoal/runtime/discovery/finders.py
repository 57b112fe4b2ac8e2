"""Find members by all means at once: links, gossip, the DHT and the local network.

Announcements go over links and by gossip; receivers drop an announcement repeated
within `ECHO_S`. While libp2p is off, starting or down, only links are used, and
look-ups return nobody. Incoming events pass through `DeduplicatingListener` on their
way to the machine and the neighbours.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.errors import ProtocolError
from shoal.protocol import codec
from shoal.protocol.messages import (
    Announcement,
    PeersKnown,
    PeersWanted,
    Revocation,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shoal.model.ids import NodeId
    from shoal.net.base import Listener
    from shoal.net.libp2p.port import Libp2p
    from shoal.net.link_selector import LinkSelector
    from shoal.protocol.messages import AnyMessage, Grant, PeerAddress
    from shoal.runtime.discovery.neighbours import Neighbours

ECHO_S: Final = 10.0
"""Equal announcements within this time count as one, over any transport."""

ECHOES_MAX: Final = 1_024
_OF_NEIGHBOURS: Final = frozenset({PeersWanted, PeersKnown})


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Enabled means of finding members; users can switch each one off."""

    gates: bool = True  # links to gates and earlier neighbours at start
    peers: bool = True  # asking neighbours for other members
    gossip: bool = True
    dht: bool = True
    mdns: bool = True
    p2p: bool = True  # libp2p: the three above, streams and relays
    direct: bool = True  # direct links, in both directions


WAYS: Final = Finding.__struct_fields__


@final
class Finders:
    """Implements `Finder` with neighbours and libp2p."""

    def __init__(
        self,
        neighbours: Neighbours,
        libp2p: Libp2p | None,
        listener: Listener,
        finding: Finding,
    ) -> None:
        """Use `finding`; give `listener` an empty answer if a look-up is off."""
        self._neighbours = neighbours
        self._libp2p = libp2p
        self._listener = listener
        self._finding = finding
        self._loop = asyncio.get_running_loop()

    def publish(self, message: AnyMessage) -> None:
        """Send a message to all reachable members."""
        self._neighbours.publish(message)
        if self._finding.gossip and (libp2p := self._started()) is not None:
            libp2p.publish(message)

    def spread(self, message: AnyMessage) -> None:
        """Send a message to the neighbours, who do not forward it.

        Links are a thousand times cheaper than gossip, and every node has some.
        """
        self._neighbours.publish(message)

    def look_up(self, lookup: int, key: str, limit: int) -> None:
        """Ask the DHT who provides a key; answered by `looked_up`."""
        libp2p = self._started()
        if libp2p is None or not self._finding.dht:
            self._loop.call_soon(self._listener.looked_up, lookup, ())
        else:
            libp2p.look_up(lookup, key, limit)

    def provide(self, keys: Sequence[str]) -> None:
        """Make these the keys this node provides in the DHT, once it is up."""
        if self._libp2p is not None and self._finding.dht:
            self._libp2p.provide(keys)

    async def close(self) -> None:
        """Close links and leave the network cleanly."""
        await self._neighbours.close()
        if self._libp2p is not None:
            await self._libp2p.close()

    def _started(self) -> Libp2p | None:
        libp2p = self._libp2p
        return libp2p if libp2p is not None and libp2p.is_started else None


@final
class DeduplicatingListener:
    """Passes network events to the node, without repeated announcements.

    It implements `Listener`. Messages about members' addresses go to the neighbours,
    everything else to the machine.
    """

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._echoes = _Echoes(asyncio.get_running_loop().time)
        self._neighbours: Neighbours | None = None
        self._on_first: Callable[[], None] | None = None

    def attach(self, neighbours: Neighbours, on_first: Callable[[], None]) -> None:
        """Forward events to `neighbours`; call `on_first` at the first link."""
        self._neighbours, self._on_first = neighbours, on_first

    def connected(self, peer: NodeId, grant: Grant | None) -> None:
        """Note that a link is up."""
        self._listener.connected(peer, grant)
        if self._neighbours is not None:
            self._neighbours.on_connected(peer)
        if self._on_first is not None:
            self._on_first()
            self._on_first = None

    def lost(self, peer: NodeId) -> None:
        """Note that a link is down."""
        self._listener.lost(peer)
        if self._neighbours is not None:
            self._neighbours.on_lost(peer)

    def received(self, peer: NodeId, messages: Sequence[AnyMessage]) -> None:
        """Pass on messages of one frame that are for the machine."""
        taken = [m for m in messages if self._takes(peer, m)]
        if not taken:
            self._listener.received(peer, messages)
        elif len(taken) < len(messages):
            rest = [m for m in messages if not any(m is one for one in taken)]
            self._listener.received(peer, rest)

    def _takes(self, peer: NodeId, message: AnyMessage) -> bool:
        """Return whether a message is handled here, or is a repeat."""
        kind = type(message)
        if kind in _OF_NEIGHBOURS and self._neighbours is not None:
            self._neighbours.on_message(peer, message)
            return kind is PeersKnown
        return isinstance(message, Announcement) and self._echoes.repeats(message)

    def heard(self, origin: NodeId, message: AnyMessage) -> None:
        """Pass on a gossip message, unless it already came over a link."""
        if isinstance(message, Announcement) and self._echoes.repeats(message):
            return
        self._listener.heard(origin, message)

    def looked_up(self, lookup: int, providers: Sequence[PeerAddress]) -> None:
        """Pass on the result of a look-up."""
        self._listener.looked_up(lookup, providers)

    def measured(self, peer: NodeId, rtt_s: float) -> None:
        """Pass on a peer's round-trip time."""
        self._listener.measured(peer, rtt_s)

    def estimated(self, nodes: int) -> None:
        """Pass on an estimate of the shoal's size."""
        self._listener.estimated(nodes)


@final
class Libp2pListener:
    """Dispatches libp2p's events; implements `StreamListener`."""

    def __init__(
        self,
        ways: LinkSelector,
        hearing: DeduplicatingListener,
        finding: Finding,
        neighbours: Neighbours,
        moved_house: Callable[[], None],
    ) -> None:
        self.opened = ways.opened
        self.moved = ways.moved
        self.ended = ways.ended
        self.received = ways.received
        self.measured = ways.measured
        self.met = neighbours.on_met
        self.moved_house = moved_house
        self.looked_up = hearing.looked_up
        self.estimated = hearing.estimated
        self._hearing = hearing
        self._gossips = finding.gossip

    def heard(self, origin: NodeId, message: AnyMessage) -> None:
        """Pass on gossip if it is enabled; revocations always."""
        if self._gossips or isinstance(message, Revocation):
            self._hearing.heard(origin, message)


@final
class _Echoes:
    """Recent announcements, at most `ECHOES_MAX`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._heard_at: OrderedDict[bytes, float] = OrderedDict()

    def repeats(self, message: Announcement) -> bool:
        """Note an announcement; return whether it repeats a recent one."""
        try:
            key = codec.encode_one(message)
        except ProtocolError:
            return False
        now = self._clock()
        before = self._heard_at.pop(key, None)
        if before is not None and now - before < ECHO_S:
            self._heard_at[key] = before
            return True
        self._heard_at[key] = now
        if len(self._heard_at) > ECHOES_MAX:
            self._heard_at.popitem(last=False)
        return False
