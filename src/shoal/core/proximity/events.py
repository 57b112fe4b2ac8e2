"""Facts about the network between nodes."""

from __future__ import annotations

import msgspec

from shoal.model.ids import NodeId


class TransferMeasured(msgspec.Struct, frozen=True):
    """So many bytes came from a peer in this time, while more was asked of it."""

    peer: NodeId
    size: int
    took_s: float


class SitesChanged(msgspec.Struct, frozen=True):
    """Which nodes are near each other: the name of each one's site."""

    sites: dict[NodeId, str]


ProximityEvent = TransferMeasured | SitesChanged
