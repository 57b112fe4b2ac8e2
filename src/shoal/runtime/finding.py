"""Finding others by every way at once: over links, by gossip, by the DHT, on the LAN.

What is announced goes over links and by gossip; whoever hears it twice believes it
once. If libp2p is off, not up yet, or down, links are what is left, and look-ups find
nobody.
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
    Introduction,
    PeersKnown,
    PeersWanted,
    Refusal,
    Revocation,
    Welcome,
)
from shoal.protocol.newcomers import InvitationGiven, InvitationTaken

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shoal.model.ids import NodeId
    from shoal.net.base import Listener
    from shoal.net.libp2p.port import Libp2p
    from shoal.net.ways import Ways
    from shoal.protocol.messages import AnyMessage, Grant, PeerAddress
    from shoal.runtime.neighbours import Neighbours

ECHO_S: Final = 10.0
"""The same announcement within this time is the same, by whatever way it came."""

ECHOES_MAX: Final = 1_024
_OF_NEIGHBOURS: Final = frozenset({PeersWanted, PeersKnown})
_OF_DESK: Final = frozenset(
    {Introduction, InvitationGiven, InvitationTaken, Welcome, Refusal}
)


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """By which ways others may be found. All are on unless a user says otherwise."""

    gates: bool = True  # links to gates and old neighbours, from the start
    peers: bool = True  # asking neighbours for others
    gossip: bool = True
    dht: bool = True
    mdns: bool = True
    p2p: bool = True  # libp2p, and so the three above, streams and relays
    direct: bool = True  # direct links, to dial and to be dialled


WAYS: Final = Finding.__struct_fields__


@final
class Finders:
    """Obeys `Finder` by neighbours and libp2p."""

    def __init__(
        self,
        neighbours: Neighbours,
        libp2p: Libp2p | None,
        listener: Listener,
        finding: Finding,
    ) -> None:
        """Use these ways; look-ups that cannot be made are answered to `listener`."""
        self._neighbours = neighbours
        self._libp2p = libp2p
        self._listener = listener
        self._finding = finding
        self._loop = asyncio.get_running_loop()

    def publish(self, message: AnyMessage) -> None:
        """Tell the whole shoal, as far as it can be reached."""
        self._neighbours.publish(message)
        if self._finding.gossip and (libp2p := self._started()) is not None:
            libp2p.publish(message)

    def spread(self, message: AnyMessage) -> None:
        """Tell the neighbours, who do not pass it on.

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
        """Tell the DHT that this node provides exactly these keys, once it is up."""
        if self._libp2p is not None and self._finding.dht:
            self._libp2p.provide(keys)

    async def close(self) -> None:
        """Leave the network in good order."""
        await self._neighbours.close()
        if self._libp2p is not None:
            await self._libp2p.close()

    def _started(self) -> Libp2p | None:
        libp2p = self._libp2p
        return libp2p if libp2p is not None and libp2p.is_started else None


@final
class Hearing:
    """Stands between the network and the node: hears each thing once.

    It obeys `Listener`, and passes on what is for the machine; what members say about
    where they are is for the neighbours.
    """

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._echoes = _Echoes(asyncio.get_running_loop().time)
        self._neighbours: Neighbours | None = None
        self._on_first: Callable[[], None] | None = None
        self._desk: Callable[[NodeId, AnyMessage], bool] | None = None

    def attach(
        self,
        neighbours: Neighbours,
        desk: Callable[[NodeId, AnyMessage], bool],
        on_first: Callable[[], None],
    ) -> None:
        """Tell these neighbours, the desk, and that there is a first link."""
        self._neighbours, self._desk, self._on_first = neighbours, desk, on_first

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
        """Take messages of one frame, but for what is not for the machine."""
        taken = [m for m in messages if self._takes(peer, m)]
        if not taken:
            self._listener.received(peer, messages)
        elif len(taken) < len(messages):
            rest = [m for m in messages if not any(m is one for one in taken)]
            self._listener.received(peer, rest)

    def _takes(self, peer: NodeId, message: AnyMessage) -> bool:
        """Take in what is for others here, and what was heard by gossip before."""
        kind = type(message)
        if kind in _OF_NEIGHBOURS and self._neighbours is not None:
            self._neighbours.on_message(peer, message)
            return kind is PeersKnown
        if kind in _OF_DESK and self._desk is not None:
            return self._desk(peer, message)
        return isinstance(message, Announcement) and self._echoes.repeats(message)

    def heard(self, origin: NodeId, message: AnyMessage) -> None:
        """Take a message by gossip, unless a link was faster."""
        if isinstance(message, Announcement) and self._echoes.repeats(message):
            return
        self._listener.heard(origin, message)

    def looked_up(self, lookup: int, providers: Sequence[PeerAddress]) -> None:
        """Take the result of a look-up."""
        self._listener.looked_up(lookup, providers)

    def measured(self, peer: NodeId, rtt_s: float) -> None:
        """Note how far away a peer is."""
        self._listener.measured(peer, rtt_s)

    def estimated(self, nodes: int) -> None:
        """Note how large the shoal is."""
        self._listener.estimated(nodes)


@final
class Libp2pEars:
    """What libp2p tells, to whom it is for: it obeys `StreamListener`."""

    def __init__(
        self,
        ways: Ways,
        hearing: Hearing,
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
        """Take a message by gossip, if that is wanted; a revocation in any case."""
        if self._gossips or isinstance(message, Revocation):
            self._hearing.heard(origin, message)


@final
class _Echoes:
    """What was announced of late."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._heard_at: OrderedDict[bytes, float] = OrderedDict()

    def repeats(self, message: Announcement) -> bool:
        """Note an announcement; return whether the same was noted just before."""
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
