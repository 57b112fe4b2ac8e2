"""Addresses of libp2p peers as text: their kinds, and a bounded book.

Nodes show three kinds of addresses to each other. Plain ones, `/ip4/.../tcp/4001`,
are for libp2p. Those that end in `/tls` are for direct links, which do not speak
libp2p; the node is given them without that ending. Those with `/p2p-circuit` lead
through a gate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from shoal.errors import UsageError
from shoal.model.ids import NodeId
from shoal.net.identity.identity import public_key
from shoal.net.libp2p.finding.gossip_guard import Latest
from shoal.protocol.limits import ADDRESS_LENGTH_MAX, ADDRESSES_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable

PEERS_MAX: Final = 4_096
_DIRECT: Final = "/tls"
_CIRCUIT: Final = "/p2p-circuit"


def is_id(text: str) -> bool:
    """Return whether this is the id of a node at all: peers may make some up."""
    try:
        public_key(NodeId(text))
    except UsageError:
        return False
    return True


def bare(address: str) -> str:
    """Return the address without the id of the peer at its end."""
    head, mark, tail = address.rpartition("/p2p/")
    return head if mark and "/" not in tail else address


def peer_of(address: str) -> NodeId | None:
    """Return whose address it is, if it says so."""
    _, mark, tail = address.rpartition("/p2p/")
    return NodeId(tail) if mark and is_id(tail) else None


def shown_direct(address: str) -> str:
    """Return an address for direct links as it is shown to peers."""
    return bare(address) + _DIRECT


def direct_ones(addresses: Iterable[str]) -> tuple[str, ...]:
    """Return those for direct links, as the node wants them."""
    plain = (bare(address) for address in addresses)
    return tuple(a.removesuffix(_DIRECT) for a in plain if a.endswith(_DIRECT))


def is_circuit(address: str) -> bool:
    """Return whether an address leads through a gate."""
    return _CIRCUIT in address


def is_plain(address: str) -> bool:
    """Return whether libp2p can dial an address itself."""
    return not is_circuit(address) and not bare(address).endswith(_DIRECT)


def is_only_here(address: str) -> bool:
    """Return whether an address is of this machine alone."""
    return address.startswith(("/ip4/127.", "/ip6/::1/"))


def circuit(gate: str, peer: NodeId) -> str:
    """Return the address of `peer` through the gate at this address."""
    return f"{gate}{_CIRCUIT}/p2p/{peer}"


def gate_address(address: str) -> str:
    """Return where the gate is that an address leads through."""
    return address.partition(_CIRCUIT)[0]


def gate_of(address: str) -> NodeId | None:
    """Return which gate an address leads through."""
    return peer_of(gate_address(address)) if is_circuit(address) else None


@final
class PeerAddressBook:
    """Addresses of recently used peers, a few for each."""

    def __init__(self) -> None:
        self._peers: Latest[NodeId, tuple[str, ...]] = Latest(PEERS_MAX)

    def add(self, peer: NodeId, addresses: Iterable[str]) -> None:
        """Remember where a peer may be; what is new comes first."""
        fit = [a for a in addresses if len(a) <= ADDRESS_LENGTH_MAX]
        merged = dict.fromkeys([*fit, *(self._peers.get(peer) or ())])
        self._peers.put(peer, tuple(merged)[:ADDRESSES_MAX])

    def of(self, peer: NodeId) -> tuple[str, ...]:
        """Return where a peer may be."""
        return self._peers.get(peer) or ()
