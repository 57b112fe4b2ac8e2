"""The admission machine: who is let into the shoal, by which word, and how often.

Theory of operation. A newcomer has no grant, so what it says does not come through the
rack: the host tells it as `JoinAsked`, and performs the one `AnswerJoin`. A case goes
through these states, each of which ends in an answer:

    found    it proved to know the secret of an invitation that this node redeems
    signed   the host signed a grant (`SignAdmission`, `AdmissionSigned`)
    kept     the use is on disk (`KeepInvitations`, `InvitationsKept`): only then does
             the `Welcome` leave, so a crash never makes an invitation good for one more
    asking   the invitation is another node's: members are asked, one after another, by
             `Introduction`: first the inviter, then admins that may have it now. Each
             has `INTRODUCE_S` to answer. A newcomer that may come back later is told so

One node at a time redeems an invitation: the node that gave it out, or the admin to
whom it gave it when it left (`InvitationGiven`, answered by `InvitationTaken`). That it
was given away is on disk before it is said. Who joined with it goes along, so a node
that lost the answer can ask the admin again; and an admin that leaves may give it back.
Each time it is given away, its `moves` rise. A node that gave it away sends newcomers
on, also those that others introduce, but only to a member that knows of fewer moves; so
a chain of questions ends. If the admin never heard of it, the giver learns so in its
next life and takes it back; not in the same life, because the message may still be on
its way (docs/decisions/0017-one-node-redeems-an-invitation.md).

A newcomer without an invitation sends `AdmissionWanted` until a person decides
(`JoinApproved`, `JoinDeclined`), or is let in at once if the local network is open. See
`join_requests`.

Nobody else is let in. A revoked node is let in again by a person, or by an invitation
that was made after the revocation. Wrong secrets are limited by origin
(`guess_limits`). Invitations expire by the wall clock. At most `CASES_MAX` cases are
open; more newcomers are told to come back.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.core.admission.events import (
    AdmissionSigned,
    AnnounceRequest,
    AnswerInvite,
    AnswerJoin,
    AuditJoin,
    HandedOver,
    HandOverRequested,
    InvitationsKept,
    InvitationWithdrawn,
    Invited,
    JoinApproved,
    JoinAsked,
    JoinDeclined,
    KeepInvitations,
    SignAdmission,
)
from shoal.core.admission.guess_limits import GuessLimits
from shoal.core.admission.invitation_book import (
    UNKNOWN,
    InvitationBook,
    InvitationTerms,
    OpenInvitation,
    pardons,
)
from shoal.core.admission.join_requests import REQUESTS_MAX, JoinRequest, JoinRequests
from shoal.core.events import (
    AddressesChanged,
    DeadlineReached,
    Effect,
    Event,
    GrantChanged,
    MessageReceived,
    PeerConnected,
    PeerLost,
    Send,
)
from shoal.core.machine import Mount
from shoal.model.ids import NodeId, RequestId
from shoal.protocol.admission import AdmissionWanted, InvitationGiven, InvitationTaken
from shoal.protocol.admission_proofs import (
    joining,
    proof_by_digest,
    proof_of,
    welcoming,
)
from shoal.protocol.limits import ADDRESSES_MAX
from shoal.protocol.messages import Introduction, PeerAddress, Refusal, Role, Welcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from shoal.core.admission.join_requests import CodeOf
    from shoal.core.membership.members import Admission
    from shoal.core.membership.roster import Roster
    from shoal.protocol.messages import AnyMessage, Grant

INTRODUCE_S: Final = 8.0
STAND_INS_MAX: Final = 8
RETRY_S: Final = 2.0
HAND_OVER_S: Final = 2.0
CASES_MAX: Final = 256
PEERS_TOLD_MAX: Final = 15
MEMBER: Final[tuple[Role, ...]] = ("scheduler", "worker", "gate")
WORKER: Final[tuple[Role, ...]] = ("worker",)

Answer = Welcome | Refusal


class AdmissionTools(msgspec.Struct, frozen=True, kw_only=True):
    """What the machine computes with, but must not know how: names, prints, chance."""

    key_print: Callable[[NodeId], bytes]
    name_of: Callable[[NodeId], str]
    code_of: CodeOf
    nonce: Callable[[], bytes]


class _Case(msgspec.Struct, kw_only=True):
    """A newcomer that will be answered: here, or through the gate that asked."""

    newcomer: NodeId
    request: RequestId
    token: int | None = None  # of the newcomer's own connection
    gate: NodeId | None = None  # the member that introduced it
    address: str = ""
    origin: str = ""
    proof: bytes = b""
    name: str = ""
    digest: bytes = b""  # of the invitation; empty: let in by a person
    how: str = ""
    grant: Grant | None = None
    peers: tuple[PeerAddress, ...] = ()
    to_ask: list[NodeId] = []
    inviter: NodeId | None = None
    moves: int = 0  # that this node knows of
    asked: tuple[NodeId, RequestId] | None = None
    gives_up_at: float = 0.0
    why: str = ""  # the answer if nobody has a better one


class _HandOver(msgspec.Struct):
    """Invitations that are being given to an admin before this node leaves."""

    token: int
    stand_in: NodeId
    given: list[OpenInvitation]
    open: dict[RequestId, None] = {}
    gives_up_at: float | None = None  # None until they are on disk


class _Writing(msgspec.Struct):
    """What waits for invitations to be on disk, besides cases and hand-overs."""

    invite: int | None = None  # the token of a user
    giver: tuple[NodeId, RequestId] | None = None


@final
class AdmissionControl:
    """Decides who is let in."""

    mount = Mount(
        takes=dict.fromkeys(
            (Introduction, InvitationGiven, InvitationTaken, Welcome, Refusal)
        ),
        hears=(
            *(JoinAsked, Invited, JoinApproved, JoinDeclined),
            *(HandOverRequested, AdmissionSigned, InvitationsKept),
            InvitationWithdrawn,
        ),
    )

    def __init__(
        self,
        node: NodeId,
        roster: Roster,
        grant: Grant | None,
        tools: AdmissionTools,
        *,
        kept: Iterable[OpenInvitation] = (),
        may_sign: bool = False,
        open_lan: bool = False,
    ) -> None:
        """Begin with the invitations that earlier lives wrote down.

        `may_sign`: this node has a key to sign by, besides being an admin.
        """
        self.counts: Counter[str] = Counter()
        self._node = node
        self._roster = roster
        self._grant = grant
        self._tools = tools
        self._print = tools.key_print(node)
        self._signs = may_sign
        self._open_lan = open_lan
        self._book = InvitationBook(kept)
        # Given away in an earlier life, and not taken back since.
        self._given_before = {one.digest: None for one in self._book if one.given_to}
        self._requests = JoinRequests(node, tools.nonce, tools.code_of)
        self._guesses = GuessLimits()
        self._announced: list[str] = []  # codes; at most REQUESTS_MAX
        self._linked: dict[NodeId, None] = {}
        self._addresses: tuple[str, ...] = ()
        self._cases: dict[int, _Case] = {}  # at most CASES_MAX
        self._writing: dict[int, _Writing] = {}
        self._hand_over: tuple[int, _HandOver] | None = None
        self._seq = 0
        self._questions = 0

    def waiting(self, now: float) -> list[JoinRequest]:
        """Return newcomers that wait for a person's decision."""
        return self._requests.pending(now)

    def has_invited(self, now: float) -> bool:
        """Whether somebody may hold an invitation of this node."""
        return any(one.ends_at > self._roster.wall_s(now) for one in self._book)

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take in one fact; return what to do about it, in order. Raising is a bug."""
        match event:
            case MessageReceived():
                return self._on_message(event.peer, event.message, now)
            case JoinAsked():
                return self._on_join_asked(event, now)
            case AdmissionSigned():
                return self._on_signed(event, now)
            case InvitationsKept():
                return self._on_kept(event, now)
            case Invited():
                return self._on_invited(event, now)
            case InvitationWithdrawn():
                return self._on_withdrawn(event.digest)
            case JoinApproved():
                self._requests.decide(event.peer, now, accepted=True, owner=event.owner)
            case JoinDeclined():
                self._requests.decide(event.peer, now, accepted=False)
            case HandOverRequested():
                return self._on_hand_over(event.token, now)
            case DeadlineReached():
                return self._on_deadline(now)
            case _:
                self._note(event)
        return []

    def _note(self, event: Event) -> None:
        match event:
            case PeerConnected():
                self._linked[event.peer] = None
            case PeerLost():
                self._linked.pop(event.peer, None)
            case AddressesChanged():
                self._addresses = event.addresses
            case GrantChanged():
                self._grant = event.grant
            case _:
                pass  # A fact for another machine of this node.

    def next_deadline(self) -> float | None:
        """When to deliver `DeadlineReached`, if ever."""
        if not self._cases and self._hand_over is None:
            return None
        due = [case.gives_up_at for case in self._cases.values() if case.asked]
        if self._hand_over is not None and self._hand_over[1].gives_up_at is not None:
            due.append(self._hand_over[1].gives_up_at)
        return min(due, default=None)

    def _on_deadline(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for id_, case in list(self._cases.items()):
            if case.asked is not None and case.gives_up_at <= now:
                silent = f"{self._tools.name_of(case.asked[0])} does not answer"
                effects += self._on_introduced(id_, case, _not_now(silent), now)
        hand_over = self._hand_over
        if hand_over is not None:
            due = hand_over[1].gives_up_at
            if due is not None and due <= now:
                effects += self._end_hand_over()
        return effects

    def _on_message(
        self, peer: NodeId, message: AnyMessage, now: float
    ) -> list[Effect]:
        match message:
            case Introduction():
                return self._on_introduction(peer, message, now)
            case InvitationGiven():
                return self._on_given(peer, message, now)
            case Welcome() | Refusal() | InvitationTaken():
                return self._on_answer(peer, message, now)
            case _:
                return []  # The rack hands on nothing else.

    # Newcomers.

    def _on_join_asked(self, event: JoinAsked, now: float) -> list[Effect]:
        message = event.message
        case = _Case(
            newcomer=event.peer,
            request=message.request,
            token=event.token,
            address=event.address,
            origin=event.origin,
        )
        if isinstance(message, AdmissionWanted):
            return self._on_wanted(event, message, case, now)
        if not self._guesses.may(event.origin, now):
            why = "too many wrong secrets from this address"
            return self._answer(case, _not_now(why), now)
        if len(self._cases) >= CASES_MAX:
            why = f"{CASES_MAX} others are being let in"
            return self._answer(case, _not_now(why), now)
        case.proof = message.proof or proof_of(message.secret, joining(event.peer))
        case.name = message.name
        found = self._book.proved(case.proof, event.peer)
        if found is not None and found.given_to:
            return self._send_on(found, case, now)
        if found is not None or message.inviter in (b"", self._print):
            return self._redeem(case, found, now)
        return self._introduce(case, message.inviter, now)

    def _on_introduction(
        self, gate: NodeId, message: Introduction, now: float
    ) -> list[Effect]:
        case = _Case(
            newcomer=message.newcomer,
            request=message.request,
            gate=gate,
            proof=message.proof,
        )
        found = self._book.proved(message.proof, message.newcomer)
        is_elsewhere = found is not None and bool(found.given_to)
        if found is not None and is_elsewhere and found.moves <= message.moves:
            found = None  # The sender gave it to this node, which never heard of that.
        if len(self._cases) >= CASES_MAX:
            why = f"{CASES_MAX} others are being let in"
            return self._answer(case, _not_now(why), now)
        if found is not None and is_elsewhere:
            return self._send_on(found, case, now)
        return self._redeem(case, found, now)

    def _redeem(
        self, case: _Case, found: OpenInvitation | None, now: float
    ) -> list[Effect]:
        """Let a newcomer in that showed a proof, if its invitation allows that."""
        if found is None:
            return self._answer(case, Refusal(reason=UNKNOWN), now)
        wall_s, node = self._roster.wall_s(now), case.newcomer
        revoked_up_to = self._roster.revoked_up_to(node)
        if flaw := self._book.redeem(found, node, wall_s, revoked_up_to):
            return self._answer(case, Refusal(reason=flaw), now)
        case.digest, case.how = found.digest, "by an invitation"
        return self._sign(case, found.terms)

    def _sign(self, case: _Case, terms: InvitationTerms) -> list[Effect]:
        id_ = self._next_id()
        self._cases[id_] = case
        return [SignAdmission(id_, case.newcomer, terms)]

    def _on_signed(self, event: AdmissionSigned, now: float) -> list[Effect]:
        case = self._cases.get(event.case)
        if case is None:
            return []
        if event.grant is None:
            del self._cases[event.case]
            return self._answer(case, Refusal(reason=event.reason), now)
        case.grant, case.peers = event.grant, event.peers[:PEERS_TOLD_MAX]
        if not case.digest:
            return self._welcome(event.case, case, now)
        return [KeepInvitations(event.case, self._book.snapshot())]

    def _welcome(self, id_: int, case: _Case, now: float) -> list[Effect]:
        """Hand out a grant, unless the newcomer was revoked since it was signed."""
        del self._cases[id_]
        grant = case.grant
        assert grant is not None
        void = self._roster.verify(case.newcomer, grant, now)
        if isinstance(void, str):
            return self._answer(case, Refusal(reason=void), now)
        proof = proof_by_digest(case.digest, welcoming(grant)) if case.digest else b""
        itself = PeerAddress(self._node, self._addresses[:ADDRESSES_MAX])
        welcome = Welcome(
            request=case.request, grant=grant, peers=(itself, *case.peers), proof=proof
        )
        audit = AuditJoin(case.newcomer, case.address, grant, case.how)
        return [audit, *self._answer(case, welcome, now)]

    def _answer(self, case: _Case, answer: Answer, now: float) -> list[Effect]:
        """Tell a newcomer, or the gate that introduced it, what came of it."""
        answer = msgspec.structs.replace(answer, request=case.request)
        if case.gate is not None:
            return [Send(case.gate, answer)]
        assert case.token is not None
        effects: list[Effect] = [AnswerJoin(case.token, answer)]
        if isinstance(answer, Refusal):
            self.counts["newcomers refused"] += 1
            effects.append(AuditJoin(case.newcomer, case.address, None, answer.reason))
            if answer.reason == UNKNOWN:
                self._guesses.wrong(case.origin, now)
        return effects

    # Newcomers whose invitation is another node's.

    def _introduce(self, case: _Case, print_: bytes, now: float) -> list[Effect]:
        """Ask the inviter, or, if that is away, admins that may have it now."""
        key_print = self._tools.key_print
        inviter = next((n for n in self._linked if key_print(n) == print_), None)
        others = [n for n in self._linked if n != inviter and self._is_admin(n, now)]
        case.inviter = inviter
        case.to_ask = [*([inviter] if inviter else []), *others[:STAND_INS_MAX]]
        case.why = f"{self._name_by_print(print_)} is not connected"
        id_ = self._next_id()
        self._cases[id_] = case
        return self._ask_next(id_, case, now)

    def _send_on(self, found: OpenInvitation, case: _Case, now: float) -> list[Effect]:
        """Ask the admin that this node gave the invitation to."""
        holder, name = found.given_to, self._tools.name_of(found.given_to)
        if holder not in self._linked:
            why = _not_now(f"{name}, who has it now, is not connected")
            return self._answer(case, why, now)
        case.inviter, case.to_ask, case.digest = holder, [holder], found.digest
        case.moves = found.moves
        case.why = f"{name} does not answer"
        id_ = self._next_id()
        self._cases[id_] = case
        return self._ask_next(id_, case, now)

    def _ask_next(self, id_: int, case: _Case, now: float) -> list[Effect]:
        if not case.to_ask:
            del self._cases[id_]
            return self._answer(case, _not_now(case.why), now)
        peer, request = case.to_ask.pop(0), self._next_request()
        case.asked, case.gives_up_at = (peer, request), now + INTRODUCE_S
        introduction = Introduction(
            request=request,
            newcomer=case.newcomer,
            proof=case.proof,
            name=case.name,
            moves=case.moves,
        )
        return [Send(peer, introduction)]

    def _on_answer(
        self, peer: NodeId, answer: Answer | InvitationTaken, now: float
    ) -> list[Effect]:
        """Take an answer; only the member that was asked can give it."""
        if self._hand_over is not None:
            hand_over = self._hand_over[1]
            if peer == hand_over.stand_in and answer.request in hand_over.open:
                del hand_over.open[answer.request]
                return [] if hand_over.open else self._end_hand_over()
        if isinstance(answer, InvitationTaken):
            return []
        for id_, case in self._cases.items():
            if case.asked == (peer, answer.request):
                return self._on_introduced(id_, case, answer, now)
        return []

    def _on_introduced(
        self, id_: int, case: _Case, answer: Answer, now: float
    ) -> list[Effect]:
        assert case.asked is not None
        (peer, _), case.asked = case.asked, None
        is_unknown = isinstance(answer, Refusal) and answer.reason == UNKNOWN
        if case.digest and is_unknown:
            return self._take_back(id_, case, now)
        is_later = isinstance(answer, Refusal) and answer.retry_in_s is not None
        if not is_later and (peer == case.inviter or not is_unknown):
            del self._cases[id_]
            return self._answer(case, answer, now)
        if peer == case.inviter and isinstance(answer, Refusal):
            case.why = answer.reason
        return self._ask_next(id_, case, now)

    def _take_back(self, id_: int, case: _Case, now: float) -> list[Effect]:
        """Redeem an invitation that was given away, but never arrived there."""
        del self._cases[id_]
        found = self._book.proved(case.proof, case.newcomer)
        if found is None or case.digest not in self._given_before:
            holder = self._tools.name_of(case.inviter or self._node)
            return self._answer(case, _not_now(f"{holder} does not have it yet"), now)
        found.given_to = NodeId("")
        del self._given_before[case.digest]  # If it is given again, that is this life.
        return self._redeem(case, found, now)

    # Newcomers without an invitation.

    def _on_wanted(
        self, event: JoinAsked, wanted: AdmissionWanted, case: _Case, now: float
    ) -> list[Effect]:
        if event.objection:
            refusal = Refusal(request=case.request, reason=event.objection)
            return [AnswerJoin(event.token, refusal)]
        hear, peer = self._requests.hear, event.peer
        answer = hear(peer, event.origin, wanted, now)
        is_open = self._open_lan and event.is_near
        if is_open and isinstance(answer, Refusal) and not self._was_revoked(peer):
            self._requests.decide(peer, now, accepted=True)
            answer = hear(peer, event.origin, wanted, now)
        if not isinstance(answer, JoinRequest):
            return [*self._announce(peer, now), AnswerJoin(event.token, answer)]
        case.how = "since the network is open" if is_open else "by somebody's word"
        roles = WORKER if self._open_lan else MEMBER
        return self._sign(case, InvitationTerms(roles=roles, owner=answer.owner))

    def _was_revoked(self, node: NodeId) -> bool:
        return self._roster.revoked_up_to(node) >= 0

    def _announce(self, peer: NodeId, now: float) -> list[Effect]:
        """Tell the user once of each newcomer that waits."""
        for one in self.waiting(now):
            if one.node == peer and one.code not in self._announced:
                self._announced = [*self._announced, one.code][-REQUESTS_MAX:]
                return [AnnounceRequest(peer)]
        return []

    # Invitations of this node, and of others that left.

    def _on_invited(self, event: Invited, now: float) -> list[Effect]:
        wall_s = self._roster.wall_s(now)
        revoked = {
            each.node: self._roster.revoked_up_to(each.node)
            for each in self._roster.revocations
        }
        invitation = OpenInvitation(
            event.digest,
            event.terms,
            event.uses,
            wall_s + event.ttl_s,
            [],
            pardons=pardons(revoked),
        )
        if flaw := self._book.take(invitation, wall_s):
            return [AnswerInvite(event.token, flaw)]
        return self._write(_Writing(invite=event.token))

    def _on_withdrawn(self, digest: bytes) -> list[Effect]:
        """Redeem an invitation no more; nobody waits until that is on disk."""
        if not self._book.drop(digest):
            return []
        return [KeepInvitations(self._next_id(), self._book.snapshot())]

    def _on_given(
        self, giver: NodeId, given: InvitationGiven, now: float
    ) -> list[Effect]:
        """Redeem what another admin gave out, within what that admin may give."""
        admission = self._roster.get(giver, now)
        refusal = ""
        if not self._may_sign():
            refusal = "this node may neither invite nor revoke"
        elif admission is None or "admin" not in admission.roles:
            refusal = "not from an admin"
        else:
            wall_s = self._roster.wall_s(now)
            refusal = self._book.take(_taken(given, admission, wall_s), wall_s)
        if refusal:
            return [Send(giver, Refusal(request=given.request, reason=refusal))]
        return self._write(_Writing(giver=(giver, given.request)))

    def _write(self, writing: _Writing) -> list[Effect]:
        id_ = self._next_id()
        self._writing[id_] = writing
        return [KeepInvitations(id_, self._book.snapshot())]

    def _on_kept(self, event: InvitationsKept, now: float) -> list[Effect]:
        case = self._cases.get(event.case)
        if case is not None and event.trouble:
            del self._cases[event.case]
            return self._answer(case, Refusal(reason=event.trouble), now)
        if case is not None:
            return self._welcome(event.case, case, now)
        if self._hand_over is not None and self._hand_over[0] == event.case:
            return self._give(self._hand_over[1], event.trouble, now)
        writing = self._writing.pop(event.case, None)
        if writing is None:
            return []
        if writing.invite is not None:
            return [AnswerInvite(writing.invite, event.trouble)]
        assert writing.giver is not None
        giver, request = writing.giver
        if event.trouble:
            return [Send(giver, Refusal(request=request, reason=event.trouble))]
        return [Send(giver, InvitationTaken(request=request))]

    def _on_hand_over(self, token: int, now: float) -> list[Effect]:
        """Choose an admin that redeems what newcomers still hold, and write it down."""
        stand_in = next((n for n in self._linked if self._is_admin(n, now)), None)
        wall_s = self._roster.wall_s(now)
        given = [
            one
            for one in self._book
            if one.left > 0 and one.ends_at > wall_s and not one.given_to
        ]
        if stand_in is None or not given or self._hand_over is not None:
            return [HandedOver(token)]
        for one in given:
            one.give_to(stand_in)
        id_ = self._next_id()
        self._hand_over = (id_, _HandOver(token, stand_in, given))
        return [KeepInvitations(id_, self._book.snapshot())]

    def _give(self, hand_over: _HandOver, trouble: str, now: float) -> list[Effect]:
        """Tell the admin, now that it is on disk; without that, keep them."""
        if trouble:
            for one in hand_over.given:
                one.given_to = NodeId("")
            return self._end_hand_over()
        wall_s = self._roster.wall_s(now)
        effects: list[Effect] = []
        for one in hand_over.given:
            request = self._next_request()
            hand_over.open[request] = None
            effects.append(Send(hand_over.stand_in, _given(one, request, wall_s)))
        hand_over.gives_up_at = now + HAND_OVER_S
        return effects

    def _end_hand_over(self) -> list[Effect]:
        assert self._hand_over is not None
        token = self._hand_over[1].token
        self._hand_over = None
        return [HandedOver(token)]

    # What the machine knows of others.

    def _may_sign(self) -> bool:
        is_admin = self._grant is not None and "admin" in self._grant.roles
        return self._signs or is_admin

    def _is_admin(self, node: NodeId, now: float) -> bool:
        admission = self._roster.get(node, now)
        return admission is not None and "admin" in admission.roles

    def _name_by_print(self, print_: bytes) -> str:
        for node in self._roster.met:
            if self._tools.key_print(node) == print_:
                return self._tools.name_of(node)
        return "the node that gave this invitation out"

    def _next_id(self) -> int:
        self._seq += 1
        return self._seq

    def _next_request(self) -> RequestId:
        self._questions += 1
        return RequestId(f"{self._node}/introduction/{self._questions}")


def least(wanted: int | None, own: int | None) -> int | None:
    """Return the smaller quota: a node cannot grant more than it has."""
    return min((one for one in (wanted, own) if one is not None), default=None)


def _not_now(reason: str) -> Refusal:
    """Return a refusal that asks the newcomer to try again later."""
    return Refusal(reason=reason, retry_in_s=RETRY_S)


def _given(one: OpenInvitation, request: RequestId, wall_s: float) -> InvitationGiven:
    return InvitationGiven(
        request=request,
        digest=one.digest,
        uses=one.left,
        ends_in_s=one.ends_at - wall_s,
        joined=tuple(one.joined),
        moves=one.moves,
        **msgspec.structs.asdict(one.terms),
    )


def _taken(given: InvitationGiven, giver: Admission, wall_s: float) -> OpenInvitation:
    """Return an invitation that gives no more than the giver has."""
    terms = InvitationTerms(
        roles=tuple(role for role in giver.roles if role in given.roles),
        owner=given.owner,
        top_priority=min(given.top_priority, giver.top_priority),
        quota_gpus=least(given.quota_gpus, giver.quota_gpus),
        quota_cpu_milli=least(given.quota_cpu_milli, giver.quota_cpu_milli),
        valid_for_s=min(given.valid_for_s, giver.valid_for_s),
    )
    return OpenInvitation(
        given.digest,
        terms,
        given.uses + len(given.joined),
        wall_s + given.ends_in_s,
        list(given.joined),
        moves=given.moves,
    )
