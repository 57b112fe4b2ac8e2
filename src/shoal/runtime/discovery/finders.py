"""Find members by all means at once: links, gossip, the DHT and the local network.

What is published goes over links and by gossip. While libp2p is off, starting or down,
only links are used, and look-ups return nobody.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, final

import msgspec

from shoal.core.discovery.events import PeerMet
from shoal.errors import UsageError
from shoal.model.kinds import Overlay
from shoal.protocol.messages import Revocation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from random import Random

    from shoal.core.events import Event
    from shoal.model.ids import NodeId
    from shoal.net.base import Listener
    from shoal.net.libp2p.port import Libp2p
    from shoal.net.link_selector import LinkSelector
    from shoal.protocol.messages import AnyMessage
    from shoal.runtime.discovery.known_members import MembersFile

TOLD_MAX: Final = 64
"""Most linked peers that one message is told to; revocations go to all of them."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Enabled means of finding members; users can switch each one off."""

    gates: bool = True  # links to gates and earlier neighbours at start
    peers: bool = True  # asking neighbours for other members
    gossip: bool = True
    dht: bool = True
    mdns: bool = True
    p2p: bool = True  # libp2p: the three above, streams and relays
    direct: bool = True  # direct links, in both directions
    probes: bool = True  # measuring what links carry, a few hundred KB each
    overlay: Overlay = "random"  # which neighbours hear load gossip


WAYS: Final = tuple(way for way in Finding.__struct_fields__ if way != "overlay")


def finding_of(without: Iterable[str], overlay: Overlay = "random") -> Finding:
    """Return the enabled means; raise `UsageError` if a name is unknown."""
    for way in without:
        if way not in WAYS:
            raise UsageError(
                f"there is no way '{way}' to do without",
                because=f"the ways are {', '.join(WAYS)}",
                hint="write it like --without mdns",
            )
    return Finding(**dict.fromkeys(without, False), overlay=overlay)


@final
class Finders:
    """Implements `Finder` with links and libp2p."""

    def __init__(
        self,
        links: LinkSelector[Any, Any],
        libp2p: Libp2p | None,
        listener: Listener,
        finding: Finding,
        members: MembersFile,
        rng: Random,
    ) -> None:
        """Use `finding`; give `listener` an empty answer if a look-up is off."""
        self._links = links
        self._libp2p = libp2p
        self._listener = listener
        self._finding = finding
        self._members = members
        self._rng = rng
        self._loop = asyncio.get_running_loop()

    def publish(self, message: AnyMessage) -> None:
        """Send a message to all reachable members."""
        self.spread(message)
        if self._finding.gossip and (libp2p := self._started()) is not None:
            libp2p.publish(message)

    def spread(self, message: AnyMessage) -> None:
        """Send a message to the neighbours, who do not forward it.

        Links are a thousand times cheaper than gossip, and every node has some.
        """
        peers: Sequence[NodeId] = self._links.peers
        if len(peers) > TOLD_MAX and not isinstance(message, Revocation):
            peers = self._rng.sample(peers, TOLD_MAX)
        for peer in peers:
            self._links.send(peer, message)

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
        await self._members.close()
        if self._libp2p is not None:
            await self._libp2p.close()

    def _started(self) -> Libp2p | None:
        libp2p = self._libp2p
        return libp2p if libp2p is not None and libp2p.is_started else None


@final
class Libp2pListener:
    """Dispatches libp2p's events; implements `StreamListener`."""

    def __init__(
        self,
        ways: LinkSelector[Any, Any],
        listener: Listener,
        finding: Finding,
        feed: Callable[[Event], None],
        moved_house: Callable[[], None],
    ) -> None:
        """Report streams to `ways`, and all else to `listener` or `feed`."""
        self.opened = ways.opened
        self.moved = ways.moved
        self.ended = ways.ended
        self.measured = ways.stream_measured
        self.moved_house = moved_house
        self.received = listener.received
        self.looked_up = listener.looked_up
        self.estimated = listener.estimated
        self._listener = listener
        self._feed = feed
        self._gossips = finding.gossip

    def heard(self, origin: NodeId, message: AnyMessage) -> None:
        """Pass on gossip if it is enabled; revocations always."""
        if self._gossips or isinstance(message, Revocation):
            self._listener.heard(origin, message)

    def met(self, peer: NodeId, addresses: Sequence[str]) -> None:
        """Report a node of the local network."""
        self._feed(PeerMet(peer, tuple(addresses)))
