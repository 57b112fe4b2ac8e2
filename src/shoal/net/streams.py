"""What links over streams tell: more than a host needs to know.

Streams are the second way to a peer. Whoever joins both ways (`net.ways`) listens to
this, and tells the host of one link.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from shoal.model.ids import NodeId
from shoal.protocol.messages import AnyMessage, Grant, PeerAddress


class StreamListener(Protocol):
    """Takes in what happens on streams, and what libp2p finds out."""

    def opened(
        self, peer: NodeId, grant: Grant | None, *, generation: int, is_relayed: bool
    ) -> None:
        """Note that a stream is up; `generation` says in which life the peer is."""
        ...

    def moved(self, peer: NodeId) -> None:
        """Note that a peer says no more over its stream, but over a direct link."""
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
        """Note that a peer, no member perhaps, says that it takes direct links."""
        ...

    def moved_house(self) -> None:
        """Note that this node is reached by other addresses from now on."""
        ...

    def heard(self, origin: NodeId, message: AnyMessage) -> None:
        """Take a message that came by gossip, signed by its origin."""
        ...

    def looked_up(self, lookup: int, providers: Sequence[PeerAddress]) -> None:
        """Note that a look-up ended, with whatever it found."""
        ...

    def estimated(self, nodes: int) -> None:
        """Note that the shoal has about this many nodes."""
        ...
