"""Addresses at which a node can be reached, of three kinds.

`/ip4/192.0.2.7/tcp/4002/p2p/ID` is for direct links. With `/noise` before the id it is
for streams of libp2p. With `/p2p-circuit` it leads to the node through a gate, by a
stream as well. Inside `net.libp2p`, as all over the world of libp2p, an address without
a mark is for libp2p; `stream_ones` and `as_stream` are the border.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shoal.model.ids import NodeId

_STREAM: Final = "/noise"
_CIRCUIT: Final = "/p2p-circuit"


def is_direct(address: str) -> bool:
    """Say whether an address is for direct links."""
    return _CIRCUIT not in address and not _bare(address).endswith(_STREAM)


def direct_ones(addresses: Iterable[str]) -> tuple[str, ...]:
    """Return those for direct links."""
    return tuple(address for address in addresses if is_direct(address))


def stream_ones(addresses: Iterable[str]) -> tuple[str, ...]:
    """Return those for streams, as libp2p writes them."""
    return tuple(_unmarked(address) for address in addresses if not is_direct(address))


def as_stream(address: str, node: NodeId) -> str:
    """Return an address of libp2p, which says no id, as other nodes are told it."""
    return f"{address}{_STREAM}/p2p/{node}"


def _unmarked(address: str) -> str:
    if _CIRCUIT in address:
        return address
    bare = _bare(address)
    return bare.removesuffix(_STREAM) + address[len(bare) :]


def _bare(address: str) -> str:
    head, mark, tail = address.rpartition("/p2p/")
    return head if mark and "/" not in tail else address
