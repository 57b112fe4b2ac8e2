"""What happens in the thread of libp2p, as the node is told it."""

from __future__ import annotations

from typing import NamedTuple

from shoal.model.ids import NodeId
from shoal.protocol.messages import AnyMessage, Grant, PeerAddress


class Ready(NamedTuple):
    """The host listens on these addresses."""

    addresses: tuple[str, ...]


class Relayed(NamedTuple):
    """Gates relay to us at these addresses now, and at no others."""

    addresses: tuple[str, ...]


class Met(NamedTuple):
    """A peer, whose id is proved, says that it takes direct links there. A hint."""

    peer: NodeId
    addresses: tuple[str, ...]


class Heard(NamedTuple):
    """A message came by gossip; its origin is proved."""

    origin: NodeId
    message: AnyMessage


class Found(NamedTuple):
    """A look-up is over."""

    lookup: int
    providers: tuple[PeerAddress, ...]


class Knocked(NamedTuple):
    """A peer with a proven id shows its grant on a stream; answer by `judged`."""

    peer: NodeId
    stream: int
    grant: Grant | None


class Opened(NamedTuple):
    """The stream to a peer is up, and the peer was admitted."""

    peer: NodeId
    grant: Grant | None
    generation: int = 0
    is_relayed: bool = False


class Moved(NamedTuple):
    """A peer says that it sends nothing more over its stream, but over a link."""

    peer: NodeId


class Arrived(NamedTuple):
    """Messages came over a stream, in one frame."""

    peer: NodeId
    messages: tuple[AnyMessage, ...]


class Ended(NamedTuple):
    """The stream to a peer is over; `is_definite` if that was no accident."""

    peer: NodeId
    is_definite: bool = False


class Measured(NamedTuple):
    """A round trip over the stream to a peer took so long."""

    peer: NodeId
    rtt_s: float


class Estimated(NamedTuple):
    """The shoal has about this many nodes."""

    nodes: int


class Stopped(NamedTuple):
    """The host died, and all its streams with it; it will be started again."""

    reason: str


Happening = (
    Ready
    | Relayed
    | Met
    | Heard
    | Found
    | Knocked
    | Opened
    | Moved
    | Arrived
    | Ended
    | Measured
    | Estimated
    | Stopped
)
