"""Keep this node linked to other members, and send messages to them.

This works without libp2p. A node links to its known gates and earlier neighbours, asks
linked peers for other members, and links to those until it has `LINKS_WANTED`. While
it has fewer than `LINKS_FEW` links it retries every `KNOCK_S`, otherwise every
`ASK_S`. A small shoal becomes fully linked, so `publish` reaches every member.
Neighbours do not forward messages; in a large shoal gossip does.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Final, Protocol, final

from shoal.model.ids import RequestId
from shoal.protocol.limits import ADDRESSES_MAX
from shoal.protocol.messages import PeersKnown, PeersWanted, Revocation
from shoal.runtime.discovery.known_members import KnownMembers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.model.ids import NodeId
    from shoal.protocol.messages import AnyMessage

KNOCK_S: Final = 5.0
"""Between two attempts to reach gates, while there are few links."""

ASK_S: Final = 60.0
"""Time between two requests for members while there are enough links."""

LINKS_FEW: Final = 3
LINKS_WANTED: Final = 16
"""Links that a node opens itself; peers may open more to it."""

PEERS_WANTED: Final = 16
GATES_MAX: Final = 64
TOLD_MAX: Final = 64
"""Most peers that `publish` sends to; revocations go to all linked peers."""


class Linking(Protocol):
    """The part of `net.link_selector.LinkSelector` used here."""

    @property
    def node(self) -> NodeId:
        """This node's id."""
        ...

    @property
    def addresses(self) -> tuple[str, ...]:
        """Addresses of this node."""
        ...

    @property
    def connected(self) -> tuple[NodeId, ...]:
        """Peers that are linked now."""
        ...

    def know(self, peer: NodeId, addresses: Sequence[str]) -> None:
        """Remember a peer's addresses."""
        ...

    def reach(self, peer: NodeId) -> None:
        """Open a link to a peer unless there is one."""
        ...

    def send(self, peer: NodeId, message: AnyMessage) -> None:
        """Queue a message to a peer."""
        ...


@final
class Neighbours:
    """Keeps this node linked to some members of its shoal."""

    def __init__(
        self,
        links: Linking,
        known: KnownMembers,
        rng: Random,
        *,
        asks: bool = True,
        relays: bool = False,
    ) -> None:
        """Link to `known` members; ask for others only if `asks`.

        `relays` tells peers whether this node is a gate.
        """
        self.gates: dict[NodeId, tuple[str, ...]] = {}  # linked, with addresses
        self._links = links
        self._known = known
        self._rng = rng
        self._asks = asks
        self._relays = relays
        self._requests = 0
        self._keeping: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start to maintain links."""
        self._keeping = asyncio.get_running_loop().create_task(self._keep())

    def publish(self, message: AnyMessage) -> None:
        """Send a message to linked peers, at most `TOLD_MAX`."""
        peers: Sequence[NodeId] = self._links.connected
        if len(peers) > TOLD_MAX and not isinstance(message, Revocation):
            peers = self._rng.sample(peers, TOLD_MAX)
        for peer in peers:
            self._links.send(peer, message)

    def on_connected(self, peer: NodeId) -> None:
        """Send our addresses to a new neighbour; ask it for members."""
        self._ask(peer)

    def on_lost(self, peer: NodeId) -> None:
        """Forget a lost neighbour's role as gate."""
        self.gates.pop(peer, None)

    def on_message(self, peer: NodeId, message: AnyMessage) -> None:
        """Learn members' addresses; link to some."""
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
        """Link to a peer found on the local network; it may be no member."""
        self._links.know(peer, addresses)
        if self._asks:
            self._befriend(peer)

    def tell_addresses(self) -> None:
        """Send our changed addresses to all neighbours."""
        for peer in self._links.connected:
            self._ask(peer)

    async def close(self) -> None:
        """Stop maintaining links; save known members."""
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
