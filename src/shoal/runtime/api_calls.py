"""Calls between the APIs of nodes, past the machine: whom for, and from whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from shoal.protocol.api_calls import ApiCall, ApiPiece, ToApi
from shoal.runtime.api_answering import Answering
from shoal.runtime.api_asking import Asking

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable

    from shoal.core.membership import Admission
    from shoal.model.ids import NodeId
    from shoal.net.base import Links
    from shoal.protocol.messages import AnyMessage, Grant

    Verify = Callable[[NodeId, Grant | None], Admission | str]


@final
class ApiCalls:
    """What this node asks others, and answers them."""

    def __init__(self, verify: Verify) -> None:
        """Ask `verify` what a peer may do now that has shown a grant."""
        self._verify = verify
        self._links: Links | None = None
        self._shown: dict[NodeId, Grant | None] = {}  # by those who are linked
        self.answering = Answering(self._send, self.admission)
        self.asking = Asking(self._send, self.counts)

    @property
    def counts(self) -> Counter[str]:
        """How often what happened."""
        return self.answering.book.counts

    def start(self, links: Links) -> None:
        """Begin to say things to others."""
        self._links = links

    def is_linked(self, peer: NodeId) -> bool:
        """Whether a peer can be asked now."""
        return peer in self._shown

    def admission(self, peer: NodeId) -> Admission | str:
        """Return what a peer may do now, or why nothing."""
        if peer not in self._shown:
            return "there is no link to it"
        return self._verify(peer, self._shown[peer])

    def shown(self, peer: NodeId) -> Grant | None:
        """Return the grant that a linked peer showed."""
        return self._shown.get(peer)

    def received(self, peer: NodeId, message: ToApi) -> None:
        """Take in what a peer says."""
        if isinstance(message, ApiCall):
            self.answering.called(peer, message)
        elif isinstance(message, ApiPiece):
            self.asking.received(peer, message)
        else:
            self.answering.told(peer, message)

    def linked(self, peer: NodeId, grant: Grant | None) -> None:
        """Note a new link: what was under way on the last one is lost."""
        self._part(peer)
        self._shown[peer] = grant

    def renewed(self, peer: NodeId, grant: Grant | None) -> None:
        """Note that a linked peer shows a new grant, if that holds."""
        if peer in self._shown and not isinstance(self._verify(peer, grant), str):
            self._shown[peer] = grant

    def lost(self, peer: NodeId) -> None:
        """Note that a link is gone."""
        self._shown.pop(peer, None)
        self._part(peer)

    async def close(self) -> None:
        """End all calls, both ways."""
        self.asking.close()
        await self.answering.close()

    def _part(self, peer: NodeId) -> None:
        self.answering.part(peer)
        self.asking.part(peer)

    def _send(self, peer: NodeId, message: AnyMessage) -> None:
        if self._links is not None and peer in self._shown:
            self._links.send(peer, message)
