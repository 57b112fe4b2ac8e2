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
    """Which nodes are near each other: the name of each one's site.

    `narrow` tells of a site how much longer it takes to talk to others than within.
    """

    sites: dict[NodeId, str]
    narrow: dict[str, float] = {}


ProximityEvent = TransferMeasured | SitesChanged
