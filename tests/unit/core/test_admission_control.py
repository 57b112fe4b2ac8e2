"""The admission machine lets in who was invited, once that is on disk."""

from random import Random
from typing import Final

import msgspec
import pytest

from shoal.core.admission.admission_control import (
    CASES_MAX,
    HAND_OVER_S,
    INTRODUCE_S,
    AdmissionControl,
)
from shoal.core.admission.events import (
    AdmissionEvent,
    AdmissionSigned,
    AnswerInvite,
    AnswerJoin,
    HandedOver,
    HandOverRequested,
    InvitationsKept,
    Invited,
    JoinAsked,
    KeepInvitations,
    SignAdmission,
)
from shoal.core.admission.invitation_book import (
    UNKNOWN,
    InvitationBook,
    InvitationTerms,
    OpenInvitation,
)
from shoal.core.events import (
    DeadlineReached,
    Effect,
    MessageReceived,
    PeerConnected,
    PeerLost,
    Send,
)
from shoal.core.membership.roster import Roster
from shoal.model.ids import NodeId, OwnerId, RequestId
from shoal.protocol.admission import InvitationGiven, InvitationTaken
from shoal.protocol.admission_proofs import joining, proof_of, secret_digest
from shoal.protocol.messages import (
    AnyMessage,
    Grant,
    Introduction,
    Join,
    Refusal,
    Welcome,
)
from shoal.sim.admission.traffic import ADMIN, sim_key_print, sim_tools
from shoal.sim.node import trust

ROOT, BOSS, GATE, ANN, BOB = map(NodeId, ("root", "boss", "gate", "ann", "bob"))
SECRET: Final = b"s" * 16
TERMS: Final = InvitationTerms(roles=("worker",), owner=OwnerId("lab"))
OWN: Final = trust.grant(ROOT, ADMIN, OwnerId("lab"))


class Desk:
    """A machine at a time, and what it asks its host for."""

    def __init__(self, kept: tuple[OpenInvitation, ...] = ()) -> None:
        self.now = 0.0
        self.roster = Roster(trust.members(), trust.WALL_AT_START_S)
        book = InvitationBook(kept).snapshot()
        tools = sim_tools(Random(1))
        self.machine = AdmissionControl(ROOT, self.roster, OWN, tools, kept=book)
        self.token = 0

    def link(self, *peers: NodeId, is_admin: bool = True) -> None:
        for peer in peers:
            grant = trust.grant(peer, ADMIN if is_admin else ("gate",), OwnerId("lab"))
            self.roster.meet(peer, grant, self.now)
            self.machine.handle(PeerConnected(peer, grant), self.now)

    def tell(self, event: AdmissionEvent) -> list[Effect]:
        return self.machine.handle(event, self.now)

    def hear(self, peer: NodeId, message: AnyMessage) -> list[Effect]:
        return self.machine.handle(MessageReceived(peer, message), self.now)

    def invite(self, uses: int = 1) -> None:
        digest = secret_digest(SECRET)
        [keep] = self.tell(Invited(9, digest, TERMS, uses, 60.0))
        assert isinstance(keep, KeepInvitations)
        assert self.tell(InvitationsKept(keep.case)) == [AnswerInvite(9)]

    def ask(self, newcomer: NodeId, inviter: NodeId = ROOT) -> list[Effect]:
        self.token += 1
        join = Join(
            request=RequestId("r"),
            secret=b"",
            proof=proof_of(SECRET, joining(newcomer)),
            inviter=sim_key_print(inviter),
        )
        return self.tell(JoinAsked(token=self.token, peer=newcomer, message=join))

    def sign(self, effects: list[Effect]) -> KeepInvitations:
        """Sign what is asked for; return what is to be written then."""
        [sign] = effects
        assert isinstance(sign, SignAdmission)
        [keep] = self.tell(AdmissionSigned(sign.case, granted(sign.peer)))
        assert isinstance(keep, KeepInvitations)
        return keep

    def let_in(self, newcomer: NodeId) -> Welcome | Refusal:
        """Do all that it takes for one newcomer."""
        effects = self.ask(newcomer)
        if isinstance(effects[0], SignAdmission):
            effects = self.tell(InvitationsKept(self.sign(effects).case))
        return answer_in(effects)


def granted(node: NodeId, serial: int = 1) -> Grant:
    return trust.grant(node, ("worker",), OwnerId("lab"), serial=serial)


def answer_in(effects: list[Effect]) -> Welcome | Refusal:
    [answer] = [each.answer for each in effects if isinstance(each, AnswerJoin)]
    assert isinstance(answer, Welcome | Refusal)
    return answer


def sent(effects: list[Effect]) -> list[tuple[NodeId, AnyMessage]]:
    return [(each.peer, each.message) for each in effects if isinstance(each, Send)]


def test_a_welcome_leaves_when_the_use_is_on_disk_and_not_before() -> None:
    desk = Desk()
    desk.invite()

    keep = desk.sign(desk.ask(ANN))

    assert [one.joined for one in keep.invitations] == [[ANN]]
    assert isinstance(answer_in(desk.tell(InvitationsKept(keep.case))), Welcome)


def test_a_disk_that_fails_lets_nobody_in() -> None:
    desk = Desk()
    desk.invite()
    keep = desk.sign(desk.ask(ANN))

    answer = answer_in(desk.tell(InvitationsKept(keep.case, "disk full")))

    assert isinstance(answer, Refusal)
    assert answer.reason == "disk full"


def test_two_that_race_for_the_last_use_do_not_both_get_it() -> None:
    desk = Desk()
    desk.invite()
    desk.ask(ANN)  # It is being signed.

    late = answer_in(desk.ask(BOB))

    assert isinstance(late, Refusal)
    assert late.reason == "the invitation is used up: 1 of 1"


def test_who_was_revoked_while_its_grant_was_written_gets_nothing() -> None:
    desk = Desk()
    desk.invite()
    keep = desk.sign(desk.ask(ANN))

    desk.roster.revoke(trust.revocation(ANN, serial=1))
    answer = answer_in(desk.tell(InvitationsKept(keep.case)))

    assert isinstance(answer, Refusal)
    assert "revoked" in answer.reason


def test_a_revoked_node_needs_an_invitation_that_is_newer() -> None:
    desk = Desk()
    desk.invite(uses=5)
    assert isinstance(desk.let_in(ANN), Welcome)

    desk.roster.revoke(trust.revocation(ANN, serial=1))

    again = desk.let_in(ANN)
    assert isinstance(again, Refusal)
    assert "newer invitation" in again.reason
    assert isinstance(desk.let_in(BOB), Welcome), "nobody else is affected"


def test_the_inviter_is_asked_first_and_then_admins_that_may_have_it() -> None:
    desk = Desk()
    desk.link(GATE, is_admin=False)
    desk.link(BOSS, BOB)

    [(first, question)] = sent(desk.ask(ANN, inviter=BOB))
    assert isinstance(question, Introduction)
    later = Refusal(request=question.request, reason="busy", retry_in_s=1.0)
    [(second, again)] = sent(desk.hear(BOB, later))
    assert isinstance(again, Introduction)
    welcome = Welcome(request=again.request, grant=granted(ANN))
    answer = answer_in(desk.hear(BOSS, welcome))

    assert (first, second) == (BOB, BOSS)
    assert isinstance(answer, Welcome)
    assert answer.request == "r"


def test_only_the_member_that_was_asked_can_answer() -> None:
    desk = Desk()
    desk.link(BOSS, BOB)
    [(_, question)] = sent(desk.ask(ANN, inviter=BOB))
    assert isinstance(question, Introduction)

    assert desk.hear(BOSS, Refusal(request=question.request, reason="no")) == []


def test_members_that_do_not_answer_are_given_up_and_the_newcomer_comes_back() -> None:
    desk = Desk()
    desk.link(BOB)
    desk.ask(ANN, inviter=BOB)

    assert desk.machine.next_deadline() == INTRODUCE_S
    answer = answer_in(desk.machine.handle(DeadlineReached(), INTRODUCE_S))

    assert isinstance(answer, Refusal)
    assert (answer.reason, answer.retry_in_s) == ("bob does not answer", 2.0)


def test_cases_are_bounded() -> None:
    desk = Desk()
    desk.invite(uses=CASES_MAX + 1)
    for n in range(CASES_MAX):
        desk.ask(NodeId(f"n{n}"))

    answer = answer_in(desk.ask(ANN))

    assert isinstance(answer, Refusal)
    assert answer.retry_in_s is not None


# Invitations that change hands.


def handed_over(desk: Desk) -> tuple[KeepInvitations, InvitationGiven]:
    """Let a node begin to leave; return what it wrote, and what it said then."""
    [keep] = desk.tell(HandOverRequested(3))
    assert isinstance(keep, KeepInvitations)
    [(peer, given)] = sent(desk.tell(InvitationsKept(keep.case)))
    assert peer == BOSS
    assert isinstance(given, InvitationGiven)
    return keep, given


def test_an_invitation_is_written_down_as_given_before_it_is_given() -> None:
    desk = Desk()
    desk.link(BOSS)
    desk.invite()

    keep, given = handed_over(desk)

    assert [one.given_to for one in keep.invitations] == [BOSS]
    taken = InvitationTaken(request=given.request)
    assert desk.hear(BOSS, taken) == [HandedOver(3)]


def test_a_node_does_not_wait_long_for_the_admin_that_stands_in() -> None:
    desk = Desk()
    desk.link(BOSS)
    desk.invite()
    handed_over(desk)

    assert desk.machine.next_deadline() == HAND_OVER_S
    assert desk.machine.handle(DeadlineReached(), HAND_OVER_S) == [HandedOver(3)]


def test_without_an_admin_there_is_nothing_to_wait_for() -> None:
    desk = Desk()
    desk.link(GATE, is_admin=False)
    desk.invite()

    assert desk.tell(HandOverRequested(3)) == [HandedOver(3)]


def test_what_is_given_away_is_taken_back_in_a_later_life_and_not_in_this_one() -> None:
    desk = Desk()
    desk.link(BOSS)
    desk.invite()
    keep, _ = handed_over(desk)
    back = Desk(keep.invitations)
    back.link(BOSS)

    def unknown_at_the_stand_in(at: Desk) -> list[Effect]:
        [(_, question)] = sent(at.ask(ANN))
        assert isinstance(question, Introduction)
        return at.hear(BOSS, Refusal(request=question.request, reason=UNKNOWN))

    same_life = answer_in(unknown_at_the_stand_in(desk))
    assert isinstance(same_life, Refusal)
    assert same_life.retry_in_s is not None, "it may still be on its way"
    [sign] = unknown_at_the_stand_in(back)
    assert isinstance(sign, SignAdmission)


def test_an_invitation_of_a_node_that_is_gone_is_redeemed_by_its_stand_in() -> None:
    desk = Desk()
    desk.link(BOSS)
    desk.link(GATE, is_admin=False)
    given = InvitationGiven(
        request=RequestId("g"),
        digest=secret_digest(SECRET),
        roles=("worker", "scheduler"),
        uses=1,
        ends_in_s=60.0,
        valid_for_s=60.0,
    )

    [(_, refused)] = sent(desk.hear(GATE, given))
    [keep] = desk.hear(BOSS, given)
    assert isinstance(keep, KeepInvitations)
    taken = sent(desk.tell(InvitationsKept(keep.case)))
    desk.machine.handle(PeerLost(BOSS), 0.0)

    assert isinstance(refused, Refusal)
    assert taken == [(BOSS, InvitationTaken(request=RequestId("g")))]
    assert isinstance(desk.let_in(ANN), Welcome)


def back_with_what_was_given_away() -> Desk:
    """Return a node in its next life, which gave an invitation to BOSS before."""
    desk = Desk()
    desk.link(BOSS)
    desk.invite(uses=2)
    keep, _ = handed_over(desk)
    back = Desk(keep.invitations)
    back.link(BOSS)
    back.link(GATE, is_admin=False)
    return back


def introduced(newcomer: NodeId, moves: int = 0) -> Introduction:
    return Introduction(
        request=RequestId("i"),
        newcomer=newcomer,
        proof=proof_of(SECRET, joining(newcomer)),
        moves=moves,
    )


@pytest.mark.parametrize("gate", [GATE, BOSS])
def test_who_is_introduced_gets_in_though_the_stand_in_never_heard(
    gate: NodeId,
) -> None:
    desk = back_with_what_was_given_away()

    [(asked, question)] = sent(desk.hear(gate, introduced(ANN)))
    assert isinstance(question, Introduction)
    unknown = Refusal(request=question.request, reason=UNKNOWN)
    keep = desk.sign(desk.hear(BOSS, unknown))
    [(told, welcome)] = sent(desk.tell(InvitationsKept(keep.case)))

    assert (asked, question.moves) == (BOSS, 1)
    assert told == gate
    assert isinstance(welcome, Welcome)
    assert welcome.request == "i"


def test_two_that_gave_it_to_each_other_do_not_ask_in_circles() -> None:
    desk = back_with_what_was_given_away()

    [(told, answer)] = sent(desk.hear(BOSS, introduced(ANN, moves=2)))

    assert told == BOSS
    assert isinstance(answer, Refusal)
    assert (answer.reason, answer.retry_in_s) == (UNKNOWN, None)


def test_what_was_taken_back_and_is_given_again_is_not_taken_back_at_once() -> None:
    desk = back_with_what_was_given_away()

    def unknown_at_the_stand_in(newcomer: NodeId) -> list[Effect]:
        [(_, question)] = sent(desk.ask(newcomer))
        assert isinstance(question, Introduction)
        return desk.hear(BOSS, Refusal(request=question.request, reason=UNKNOWN))

    desk.tell(InvitationsKept(desk.sign(unknown_at_the_stand_in(ANN)).case))
    handed_over(desk)
    answer = answer_in(unknown_at_the_stand_in(BOB))

    assert isinstance(answer, Refusal)
    assert answer.retry_in_s is not None, "it may still be on its way"


def test_an_invitation_comes_back_with_those_who_joined_meanwhile() -> None:
    desk = back_with_what_was_given_away()
    given = InvitationGiven(
        request=RequestId("g"),
        digest=secret_digest(SECRET),
        roles=("worker",),
        uses=1,
        ends_in_s=60.0,
        valid_for_s=60.0,
        joined=(ANN,),
        moves=1,
    )

    desk.hear(BOSS, given)  # It is what this node itself had said.
    [(asked, _)] = sent(desk.ask(BOB))
    desk.hear(BOSS, msgspec.structs.replace(given, moves=2))
    answers = [desk.let_in(node) for node in (ANN, BOB, GATE)]

    assert asked == BOSS
    assert [type(answer) for answer in answers] == [Welcome, Welcome, Refusal]
