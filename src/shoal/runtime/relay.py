"""Passes calls and results between lanes and callers, past the machine of the node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, final

from shoal.protocol.batches import CallBatch, ToLanes
from shoal.runtime.calls import CallingNode, Calls
from shoal.runtime.lanes import Lanes

if TYPE_CHECKING:
    from shoal.model.ids import NodeId
    from shoal.net.base import Links
    from shoal.protocol.messages import AnyMessage


class RelayingNode(CallingNode, Protocol):
    """What the relay needs of the node."""

    @property
    def id(self) -> NodeId:
        """The node's id."""
        ...


@final
class Relay:
    """The lanes that run here, and the calls of clients of this node."""

    def __init__(self, node: RelayingNode) -> None:
        self.lanes = Lanes(self._send)
        self.calls = Calls(node, self._send)
        self._node = node
        self._links: Links | None = None

    async def start(self, links: Links) -> None:
        """Begin to say things to others."""
        self._links = links
        await self.calls.clear()

    def received(self, peer: NodeId, message: ToLanes) -> None:
        """Take in what another node says of calls."""
        if isinstance(message, CallBatch):
            self.lanes.received(peer, message)
        else:
            self.calls.received(peer, message)

    def linked(self, peer: NodeId) -> None:
        """Say again what may have been lost with the last link."""
        self.lanes.linked(peer)
        self.calls.linked(peer)

    def lost(self, peer: NodeId) -> None:
        """Note that a link is gone."""
        self.calls.lost(peer)

    async def close(self) -> None:
        """End what clients of this node wait for."""
        await self.calls.close()
        self.lanes.close()

    def _send(self, peer: NodeId, message: AnyMessage) -> None:
        if peer == self._node.id:
            assert isinstance(message, ToLanes)
            self.received(peer, message)
        elif self._links is not None:
            self._links.send(peer, message)
