"""Who begins to punch a hole, when two peers are joined by a circuit."""

# pyright: reportMissingTypeStubs=false

from typing import Any, cast

import pytest
import trio

from shoal.model.ids import NodeId
from shoal.net.identity.identity import Identity
from shoal.net.libp2p.thread.host_parts import OneSidedPunching, id_of

SMALL, LARGE = sorted(Identity.from_seed(bytes([n]) * 32).node for n in (1, 2))


class Told:
    """A host that opens and dials nothing, but keeps what it was told to."""

    def __init__(self, node: NodeId) -> None:
        self.connections: dict[object, object] = {}
        self.streams: list[object] = []
        self.dials: list[object] = []
        self._id = id_of(node)

    def get_id(self) -> object:
        return self._id

    def get_network(self) -> "Told":
        return self

    def get_peerstore(self) -> "Told":
        return self

    def addrs(self, peer: object) -> list[str]:
        return ["/ip4/203.0.113.9/tcp/4001"]

    async def dial_addr(self, address: object, peer: object, source: object) -> None:
        self.dials.append(address)

    async def new_stream(self, peer: object, protocols: object) -> None:
        self.streams.append(peer)


@pytest.mark.parametrize(("here", "there"), [(SMALL, LARGE), (LARGE, SMALL)])
def test_of_two_peers_only_that_with_the_smaller_id_begins(
    here: NodeId, there: NodeId
) -> None:
    host = Told(here)
    punching = OneSidedPunching(cast("Any", host))

    trio.run(punching.initiate_hole_punch, id_of(there))

    assert host.streams == ([id_of(there)] if here == SMALL else [])
    assert host.dials == [], "that was tried before there was a circuit"
