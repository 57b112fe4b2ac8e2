"""Bugs of admission, which `planted` plants among the others."""

import msgspec

from shoal.core.admission import admission_control
from shoal.core.admission.admission_control import AdmissionControl, _Case
from shoal.core.admission.events import AdmissionSigned
from shoal.core.admission.invitation_book import InvitationBook, OpenInvitation
from shoal.core.admission.join_requests import JoinAttempt, JoinRequest, JoinRequests
from shoal.core.events import Effect, Send
from shoal.model.ids import NodeId, RequestId
from shoal.protocol.admission import AdmissionHeard, AdmissionWanted, InvitationGiven
from shoal.protocol.messages import Introduction, Refusal, Welcome

_given_away = admission_control._given
_on_admission_signed = AdmissionControl._on_signed
_take_back = AdmissionControl._take_back
_on_introduction = AdmissionControl._on_introduction
_on_attempt_answered = JoinAttempt.hear
_redeem = InvitationBook.redeem
_hear = JoinRequests.hear


def welcomed_before_it_is_on_disk(
    self: AdmissionControl, event: AdmissionSigned, now: float
) -> list[Effect]:
    """Let a newcomer in, and write it down a little later."""
    case = self._cases.get(event.case)
    if case is None or event.grant is None or not case.digest:
        return _on_admission_signed(self, event, now)
    kept = _on_admission_signed(self, event, now)
    return [*self._welcome(event.case, case, now), *kept]


def invitation_taken_back_at_once(
    self: AdmissionControl, id_: int, case: _Case, now: float
) -> list[Effect]:
    """Take back what was given away in the same life."""
    self._given_before[case.digest] = None
    return _take_back(self, id_, case, now)


def old_invitation_lets_the_revoked_in(
    self: InvitationBook,
    found: OpenInvitation,
    node: NodeId,
    now: float,
    revoked_up_to: int,
) -> str:
    """Look at uses and time only."""
    return _redeem(self, found, node, now, -1)


def introduced_are_not_sent_on(
    self: AdmissionControl, gate: NodeId, message: Introduction, now: float
) -> list[Effect]:
    """Tell a gate to ask the admin to whom an invitation was given."""
    found = self._book.proved(message.proof, message.newcomer)
    if found is None or not found.given_to:
        return _on_introduction(self, gate, message, now)
    elsewhere = Refusal(request=message.request, reason="ask there", retry_in_s=2.0)
    return [Send(gate, elsewhere)]


def forgotten_stranger_goes_on(
    self: JoinAttempt, answer: Welcome | Refusal | AdmissionHeard
) -> Welcome | Refusal | None:
    """Repeat a request of which the other node knows nothing."""
    if isinstance(answer, Refusal):
        return None
    return _on_attempt_answered(self, answer)


def joined_do_not_go_along(
    one: OpenInvitation, request: RequestId, wall_s: float
) -> InvitationGiven:
    """Give away what is left of an invitation, and nothing else."""
    given = _given_away(one, request, wall_s)
    return msgspec.structs.replace(given, joined=())


def any_secret_opens(
    self: InvitationBook, proof: bytes, node: NodeId
) -> OpenInvitation | None:
    """Take the first invitation for proved."""
    return next(iter(self), None)


def stranger_let_in_unasked(
    self: JoinRequests,
    node: NodeId,
    origin: str,
    wanted: AdmissionWanted,
    now: float,
) -> AdmissionHeard | Refusal | JoinRequest:
    """Let in any newcomer that has told its number."""
    answer = _hear(self, node, origin, wanted, now)
    return self._asked[node] if wanted.nonce and node in self._asked else answer
