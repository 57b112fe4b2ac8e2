"""What the two threads tell each other: orders to libp2p, and what happened there."""

from __future__ import annotations

from typing import NamedTuple

from shoal.model.ids import NodeId
from shoal.protocol.messages import AnyMessage, Grant, PeerAddress


class Publish(NamedTuple):
    """Gossip these bytes to all, or only to the neighbours."""

    data: bytes
    is_near: bool


class Provide(NamedTuple):
    """Provide these keys in the DHT, and no others."""

    keys: tuple[str, ...]


class LookUp(NamedTuple):
    """Find out who provides a key; answered by `Found`."""

    lookup: int
    key: str
    limit: int


class Know(NamedTuple):
    """Remember where a peer may be dialled."""

    peer: NodeId
    addresses: tuple[str, ...]


class Transmit(NamedTuple):
    """Send a frame over the stream to a peer; open one if there is none."""

    peer: NodeId
    frame: bytes


class Cut(NamedTuple):
    """End the stream to a peer, and refuse it for a while."""

    peer: NodeId
    reason: str


class Trust(NamedTuple):
    """Give the gossip of this member room of its own."""

    peer: NodeId


class Advertise(NamedTuple):
    """Tell others that direct links are accepted here."""

    addresses: tuple[str, ...]


class Judged(NamedTuple):
    """Tell the stream that waits for it why its peer may not come in, or None."""

    stream: int
    reason: str | None


class Leave(NamedTuple):
    """Go away in good order."""


Order = (
    Publish
    | Provide
    | LookUp
    | Know
    | Transmit
    | Cut
    | Trust
    | Advertise
    | Judged
    | Leave
)


class Ready(NamedTuple):
    """The host listens on these addresses."""

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
    """A peer, whose id is proved, shows its grant on a stream. Answer by `Judged`."""

    peer: NodeId
    stream: int
    grant: Grant | None


class Opened(NamedTuple):
    """The stream to a peer is up, and the peer was admitted."""

    peer: NodeId
    grant: Grant | None


class Arrived(NamedTuple):
    """Messages came over a stream, in one frame."""

    peer: NodeId
    messages: tuple[AnyMessage, ...]


class Ended(NamedTuple):
    """The stream to a peer broke or fell silent."""

    peer: NodeId


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
    | Heard
    | Found
    | Knocked
    | Opened
    | Arrived
    | Ended
    | Measured
    | Estimated
    | Stopped
)
