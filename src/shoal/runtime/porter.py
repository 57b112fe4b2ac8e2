"""Those who come without an invitation: they wait until somebody here decides."""

from __future__ import annotations

import time
from functools import partial
from secrets import token_bytes
from typing import TYPE_CHECKING, final

from shoal.errors import ShoalError
from shoal.model.ids import NodeId, OwnerId
from shoal.net.invitations import Terms
from shoal.net.petname import petname
from shoal.net.requests import (
    NONCE_BYTES,
    REQUESTS_MAX,
    Asked,
    Requests,
    is_local,
)
from shoal.protocol.messages import Refusal, Welcome
from shoal.runtime.audit import let_in
from shoal.runtime.granting import ROLES

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.protocol.newcomers import AdmissionHeard, AdmissionWanted
    from shoal.runtime.audit import Audit
    from shoal.runtime.company import Company
    from shoal.runtime.granting import Granting


@final
class Porter:
    """Answers who asks to be let in, and tells the user of them."""

    def __init__(
        self,
        node: NodeId,
        shoal: str,
        granting: Granting,
        company: Company,
        audit: Audit,
    ) -> None:
        self.open_lan = False  # whether anybody near may lend without being asked
        self.say: Callable[[str], None] = lambda _: None
        self._shoal = shoal
        self._granting = granting
        self._company = company
        self._audit = audit
        self._requests = Requests(node, partial(token_bytes, NONCE_BYTES))
        self._told: list[str] = []  # Codes that were told of; at most REQUESTS_MAX.

    def __call__(
        self, peer: NodeId, wanted: AdmissionWanted, address: str
    ) -> Welcome | Refusal | AdmissionHeard:
        """Answer somebody without an invitation, once somebody here has decided."""
        requests = self._requests
        try:
            self._granting.check()
            answer = requests.hear(peer, address, wanted, time.monotonic())
            if self.open_lan and is_local(address) and isinstance(answer, Refusal):
                self.decide(peer, accepted=True)
                answer = requests.hear(peer, address, wanted, time.monotonic())
            if not isinstance(answer, Asked):
                self._tell_of(peer)
                return answer
            role = "worker" if self.open_lan else "member"
            terms = Terms(roles=ROLES[role], owner=answer.owner)
            grant = self._granting.grant(peer, terms)
        except ShoalError as error:
            return Refusal(request=wanted.request, reason=str(error))
        how = "since the network is open" if self.open_lan else "by somebody's word"
        self._audit.note(let_in(grant, address, how))
        peers = self._company.peers()
        return Welcome(request=wanted.request, grant=grant, peers=peers)

    @property
    def waiting(self) -> list[Asked]:
        """Those who ask to be let in, and for whom nobody has decided."""
        return self._requests.pending(time.monotonic())

    def decide(
        self, node: NodeId, *, accepted: bool, owner: OwnerId | None = None
    ) -> bool:
        """Let in who asked, or do not; return whether it still waits."""
        now = time.monotonic()
        return self._requests.decide(node, now, accepted=accepted, owner=owner)

    def _tell_of(self, peer: NodeId) -> None:
        """Say once of each who asks that it does."""
        for one in self.waiting:
            if one.node == peer and one.code not in self._told:
                self._told = [*self._told, one.code][-REQUESTS_MAX:]
                self.say(
                    f'{petname(peer)} wants to join "{self._shoal}":'
                    " `shoal accept`, and type the code that its screen shows"
                )
