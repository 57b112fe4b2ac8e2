"""The interface between a node's host and the network.

Direct links and libp2p implement these protocols. All calls are made on the host's
event loop and none of them blocks: messages that do not fit into a bounded queue are
dropped and counted, because peers repeat what matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from shoal.model.ids import NodeId
from shoal.protocol.messages import AnyMessage, Grant, PeerAddress

LEAVING: Final = "leaving"
"""What a node that stops says last on a link."""

IT_SAID: Final = "it said: "
"""How a trouble begins that is the word of the peer."""

LEFT: Final = f"{IT_SAID}{LEAVING}"


class LinkListener(Protocol):
    """Receives what happens on links, in order for each peer."""

    def connected(self, peer: NodeId, grant: Grant | None) -> None:
        """Note that a link is up: the handshake proved the id and showed the grant."""
        ...

    def lost(self, peer: NodeId) -> None:
        """Note that the link to a peer broke or fell silent."""
        ...

    def received(self, peer: NodeId, messages: Sequence[AnyMessage]) -> None:
        """Take messages that came in one frame over a link."""
        ...

    def measured(self, peer: NodeId, rtt_s: float) -> None:
        """Note how long a round trip over a link took."""
        ...


class Listener(LinkListener, Protocol):
    """Receives what happens on the network."""

    def heard(self, origin: NodeId, message: AnyMessage) -> None:
        """Take a message that came by gossip, signed by its origin."""
        ...

    def looked_up(self, lookup: int, providers: Sequence[PeerAddress]) -> None:
        """Note that a look-up ended, with the providers it found."""
        ...

    def estimated(self, nodes: int) -> None:
        """Note that the shoal has about this many nodes."""
        ...


class Links(Protocol):
    """Carries messages between two nodes, over one ordered link per pair."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """Return where this node can be dialled, as multiaddrs."""
        ...

    def know(self, peer: NodeId, addresses: Sequence[str]) -> None:
        """Remember where a peer may be dialled."""
        ...

    def trouble(self, peer: NodeId) -> str:
        """Return why there is no link to a peer, or what it said when it left."""
        ...

    def send(self, peer: NodeId, message: AnyMessage) -> None:
        """Queue a message; messages queued in one turn go in one frame.

        Opens a link if there is none and an address is known.
        """
        ...

    def disconnect(self, peer: NodeId, reason: str) -> None:
        """Cut the link to a peer, and refuse it for a while."""
        ...

    async def close(self) -> None:
        """Flush the queues briefly and close all links."""
        ...


class Finder(Protocol):
    """Finds peers and broadcasts: gossip, DHT, local network."""

    def publish(self, message: AnyMessage) -> None:
        """Gossip to the whole shoal."""
        ...

    def spread(self, message: AnyMessage) -> None:
        """Tell the neighbours, who do not pass it on."""
        ...

    def look_up(self, lookup: int, key: str, limit: int) -> None:
        """Ask the DHT who provides a key; answered by `looked_up`."""
        ...

    def provide(self, keys: Sequence[str]) -> None:
        """Tell the DHT that this node provides exactly these keys."""
        ...

    async def close(self) -> None:
        """Leave the network in good order."""
        ...


class StreamListener(Protocol):
    """Receives what happens on streams, and what libp2p discovers.

    Streams are the second path to a peer. `net.link_selector` joins both paths and
    tells the host of one link.
    """

    def opened(
        self, peer: NodeId, grant: Grant | None, *, generation: int, is_relayed: bool
    ) -> None:
        """Note that a stream is up; `generation` says in which life the peer is."""
        ...

    def moved(self, peer: NodeId) -> None:
        """Note that a peer has moved from its stream to a direct link."""
        ...

    def ended(self, peer: NodeId, *, is_definite: bool) -> None:
        """Note that a stream is over; by accident, unless `is_definite`."""
        ...

    def received(self, peer: NodeId, messages: Sequence[AnyMessage]) -> None:
        """Take messages that came in one frame over a stream."""
        ...

    def measured(self, peer: NodeId, rtt_s: float) -> None:
        """Note how long a round trip over a stream took."""
        ...

    def met(self, peer: NodeId, addresses: Sequence[str]) -> None:
        """Note that a peer, perhaps not a member, accepts direct links there."""
        ...

    def moved_house(self) -> None:
        """Note that this node is reached by other addresses from now on."""
        ...

    def heard(self, origin: NodeId, message: AnyMessage) -> None:
        """Take a message that came by gossip, signed by its origin."""
        ...

    def looked_up(self, lookup: int, providers: Sequence[PeerAddress]) -> None:
        """Note that a look-up ended, with the providers it found."""
        ...

    def estimated(self, nodes: int) -> None:
        """Note that the shoal has about this many nodes."""
        ...
