"""The other members, as the desk of a node sees them, and questions to them.

A question is about a newcomer, and carries the request that its answer names. Only who
was asked can answer it. One that is not answered in time was perhaps heard.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, final

from shoal.model.ids import RequestId
from shoal.net.invitations import key_print
from shoal.net.petname import petname
from shoal.protocol.messages import Introduction, Refusal, Welcome
from shoal.protocol.newcomers import InvitationGiven, InvitationTaken

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shoal.core.membership import Admission
    from shoal.model.ids import NodeId
    from shoal.net.base import Links
    from shoal.protocol.messages import AnyMessage, PeerAddress

QUESTIONS_MAX: Final = 64
"""Questions at one time whose answers have not come."""

Question = Introduction | InvitationGiven
Answer = Welcome | Refusal | InvitationTaken


@final
class Company:
    """Whom a node is linked to. Its network fills it in when it is there."""

    def __init__(self, node: NodeId) -> None:
        self.links: Links | None = None
        self.linked: Callable[[], Sequence[NodeId]] = tuple
        self.peers: Callable[[], tuple[PeerAddress, ...]] = tuple
        self.admission: Callable[[NodeId], Admission | None] = _nobody
        self._node = node
        self._questions = 0
        # By request and by whom was asked: nobody answers in the place of another.
        self._waiting: dict[tuple[NodeId, RequestId], asyncio.Future[Answer]] = {}

    def is_admin(self, node: NodeId) -> bool:
        """Whether a member may let others in."""
        admission = self.admission(node)
        return admission is not None and "admin" in admission.roles

    def name_of(self, print_: bytes) -> str:
        """Return the name of a member by the print of its key, if it is known."""
        known = [*self.linked(), *(peer.node for peer in self.peers())]
        names = [petname(node) for node in known if key_print(node) == print_]
        return names[0] if names else "the node that gave this invitation out"

    def next_request(self) -> RequestId:
        """Return a name for the next question."""
        self._questions += 1
        return RequestId(f"{self._node}/introduction/{self._questions}")

    def tell(self, peer: NodeId, message: AnyMessage) -> None:
        """Send something to a member."""
        if self.links is not None:
            self.links.send(peer, message)

    async def ask(
        self, peer: NodeId, question: Question, timeout_s: float
    ) -> Answer | None:
        """Return what a member answers; None if it does not."""
        if self.links is None or len(self._waiting) >= QUESTIONS_MAX:
            return None
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[peer, question.request] = answer
        try:
            self.links.send(peer, question)
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            return None
        finally:
            del self._waiting[peer, question.request]

    def takes(self, peer: NodeId, answer: Answer) -> bool:
        """Take in an answer; return False if it may be meant for somebody else."""
        waiting = self._waiting.get((peer, answer.request))
        if waiting is None or waiting.done():
            return not isinstance(answer, Refusal)
        waiting.set_result(answer)
        return True


def _nobody(node: NodeId) -> Admission | None:
    """Know nobody: the network is not there yet."""
