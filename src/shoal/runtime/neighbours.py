"""A finder for small shoals: it tells those whom this node is linked to.

Nobody passes anything on, so nodes that share work must be linked to each other. The
gates are where this node joined, and members that it was told of there.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, final

from shoal.errors import UsageError
from shoal.model.ids import NodeId, RequestId
from shoal.net import multiaddr
from shoal.protocol.messages import PeersWanted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.net.base import Listener
    from shoal.net.direct import DirectLinks
    from shoal.protocol.messages import AnyMessage

KNOCK_S: Final = 5.0
"""Between two attempts to reach a gate that there is no link to."""

PEERS_WANTED: Final = 16


@final
class Neighbours:
    """Tells neighbours; looks nothing up."""

    def __init__(
        self, links: DirectLinks, listener: Listener, gates: Sequence[str]
    ) -> None:
        self._links = links
        self._listener = listener
        self._gates: dict[NodeId, list[str]] = {}
        for text in gates:
            if node := _node_of(text):
                self._gates.setdefault(node, []).append(text)
        self._knocks = 0
        self._knocking: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to keep links to the gates."""
        if self._gates:
            self._knocking = asyncio.get_running_loop().create_task(self._keep())

    def publish(self, message: AnyMessage) -> None:
        """Tell everybody whom we are linked to."""
        for peer in self._links.connected:
            self._links.send(peer, message)

    def spread(self, message: AnyMessage) -> None:
        """Tell everybody whom we are linked to."""
        self.publish(message)

    def look_up(self, lookup: int, key: str, limit: int) -> None:
        """Find nobody."""
        self._listener.looked_up(lookup, ())

    def provide(self, keys: Sequence[str]) -> None:
        """Provide to nobody: neighbours are told, and others do not look."""

    async def close(self) -> None:
        """Keep no links any more."""
        if self._knocking is not None:
            self._knocking.cancel()
            await asyncio.gather(self._knocking, return_exceptions=True)

    async def _keep(self) -> None:
        while True:
            for gate, addresses in self._gates.items():
                if gate not in self._links.connected:
                    self._knocks += 1
                    request = RequestId(f"{self._links.node}/knock/{self._knocks}")
                    self._links.know(gate, addresses)
                    wanted = PeersWanted(request=request, count=PEERS_WANTED)
                    self._links.send(gate, wanted)
            await asyncio.sleep(KNOCK_S)


def _node_of(text: str) -> NodeId | None:
    try:
        return multiaddr.parse(text).node
    except UsageError:
        return None
