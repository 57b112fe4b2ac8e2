"""The members that this node is linked to: kept, told, and asked for others.

This needs no libp2p, and is what is left when that is off or down. A node keeps links
to the gates it was told of, asks whoever it is linked to for other members, and links
itself to some of them. So a small shoal is linked all round, and who is told something
by `publish` is everybody. Nobody passes anything on; in a large shoal gossip does.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Final, Protocol, final

from shoal.model.ids import RequestId
from shoal.protocol.limits import ADDRESSES_MAX
from shoal.protocol.messages import PeersKnown, PeersWanted, Revocation
from shoal.runtime.acquaintances import Acquaintances

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.model.ids import NodeId
    from shoal.protocol.messages import AnyMessage

KNOCK_S: Final = 5.0
"""Between two attempts to reach gates, while there are few links."""

ASK_S: Final = 60.0
"""Between two questions for other members, while there are enough links."""

LINKS_FEW: Final = 3
LINKS_WANTED: Final = 16
"""So many links a node makes of its own accord; others may come to it."""

PEERS_WANTED: Final = 16
GATES_MAX: Final = 64
TOLD_MAX: Final = 64
"""Linked peers that are told something by `publish`; a revocation is told to all."""


class Linking(Protocol):
    """What is needed of the ways to peers: a part of `net.ways.Ways`."""

    @property
    def node(self) -> NodeId:
        """Say who this node is."""
        ...

    @property
    def addresses(self) -> tuple[str, ...]:
        """Say where this node can be reached."""
        ...

    @property
    def connected(self) -> tuple[NodeId, ...]:
        """Say to whom there is a link now."""
        ...

    def know(self, peer: NodeId, addresses: Sequence[str]) -> None:
        """Remember where a peer may be reached."""
        ...

    def reach(self, peer: NodeId) -> None:
        """Open a link to a peer if there is none."""
        ...

    def send(self, peer: NodeId, message: AnyMessage) -> None:
        """Queue a message."""
        ...


@final
class Neighbours:
    """Keeps this node linked to some members of its shoal."""

    def __init__(
        self,
        links: Linking,
        known: Acquaintances,
        rng: Random,
        *,
        asks: bool = True,
        relays: bool = False,
    ) -> None:
        """Begin with those who are `known`; look for others only if `asks`.

        `relays` is what others are told of this node.
        """
        self.gates: dict[NodeId, tuple[str, ...]] = {}  # linked, and where they are
        self._links = links
        self._known = known
        self._rng = rng
        self._asks = asks
        self._relays = relays
        self._requests = 0
        self._keeping: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to keep links."""
        self._keeping = asyncio.get_running_loop().create_task(self._keep())

    def publish(self, message: AnyMessage) -> None:
        """Tell those whom we are linked to."""
        peers: Sequence[NodeId] = self._links.connected
        if len(peers) > TOLD_MAX and not isinstance(message, Revocation):
            peers = self._rng.sample(peers, TOLD_MAX)
        for peer in peers:
            self._links.send(peer, message)

    def on_connected(self, peer: NodeId) -> None:
        """Say where we are, and ask a new neighbour whom else it knows."""
        self._ask(peer)

    def on_lost(self, peer: NodeId) -> None:
        """Do without a neighbour."""
        self.gates.pop(peer, None)

    def on_message(self, peer: NodeId, message: AnyMessage) -> None:
        """Take in where members can be reached."""
        if isinstance(message, PeersWanted):
            self._learn(peer, message.addresses)
            if message.relays and len(self.gates) < GATES_MAX:
                self.gates[peer] = message.addresses
        elif isinstance(message, PeersKnown) and self._asks:
            for named in message.peers:
                self._learn(named.node, named.addresses)
                self._befriend(named.node)
        elif isinstance(message, PeersKnown):
            for named in message.peers:
                if named.node == peer:
                    self._learn(peer, named.addresses)

    def on_met(self, peer: NodeId, addresses: Sequence[str]) -> None:
        """Take in that somebody is near, who may well be no member."""
        self._links.know(peer, addresses)
        if self._asks:
            self._befriend(peer)

    def tell_addresses(self) -> None:
        """Say again where we are: that has changed."""
        for peer in self._links.connected:
            self._ask(peer)

    async def close(self) -> None:
        """Keep no links any more."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
        await self._known.save()

    def _learn(self, peer: NodeId, addresses: Sequence[str]) -> None:
        if peer != self._links.node and addresses:
            self._links.know(peer, addresses)
            if peer in self._links.connected:
                self._known.note(peer, addresses)

    def _befriend(self, peer: NodeId) -> None:
        if len(self._links.connected) < LINKS_WANTED:
            self._links.reach(peer)

    def _ask(self, peer: NodeId) -> None:
        self._requests += 1
        wanted = PeersWanted(
            request=RequestId(f"{self._links.node}/peers/{self._requests}"),
            count=PEERS_WANTED if self._asks else 0,
            addresses=self._links.addresses[:ADDRESSES_MAX],
            relays=self._relays,
        )
        self._links.send(peer, wanted)

    async def _keep(self) -> None:
        loop = asyncio.get_running_loop()
        asked_at = loop.time()
        while True:
            is_lonely = len(self._links.connected) < LINKS_FEW
            if is_lonely or loop.time() - asked_at >= ASK_S:
                for peer, addresses in self._known:
                    if peer not in self._links.connected:
                        self._links.know(peer, addresses)
                        self._links.reach(peer)
            is_due = loop.time() - asked_at >= ASK_S
            if (is_lonely or is_due) and (linked := self._links.connected):
                self._ask(self._rng.choice(linked))
            if is_due:
                asked_at = loop.time()
                await self._known.save()
            await asyncio.sleep(KNOCK_S)
