"""Facts and effects about the members that a node knows and is linked to."""

from __future__ import annotations

import msgspec

from shoal.model.ids import NodeId

# Events.


class NetworkOpened(msgspec.Struct, frozen=True):
    """Members can be dialled from now on. `relays`: this node is a gate for others."""

    relays: bool = False


class PeerMet(msgspec.Struct, frozen=True):
    """A node was found on the local network. It may be no member."""

    peer: NodeId
    addresses: tuple[str, ...]


DiscoveryEvent = NetworkOpened | PeerMet

# Effects.


class LearnAddresses(msgspec.Struct, frozen=True):
    """Remember where a node can be dialled."""

    node: NodeId
    addresses: tuple[str, ...]


class ReachPeer(msgspec.Struct, frozen=True):
    """Open a link to a peer if there is none, at an address that was learned."""

    peer: NodeId


class KeepMembers(msgspec.Struct, frozen=True):
    """Keep these members for the next life of this node, the oldest first."""

    met: dict[NodeId, tuple[str, ...]]


class ExpectCompany(msgspec.Struct, frozen=True):
    """Use all means to be found from now on: this node is not alone."""


DiscoveryEffect = LearnAddresses | ReachPeer | KeepMembers | ExpectCompany
