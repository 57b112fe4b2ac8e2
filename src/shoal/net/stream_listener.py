"""The listener of links over streams.

Streams are the second path to a peer. `net.link_selector` joins both paths: it is this
listener, and tells the host of one link.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from shoal.model.ids import NodeId
from shoal.protocol.messages import AnyMessage, Grant, PeerAddress


class StreamListener(Protocol):
    """Receives what happens on streams, and what libp2p discovers."""

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
