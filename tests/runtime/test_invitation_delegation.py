"""One node at a time redeems an invitation, whatever gets lost."""

import time
from pathlib import Path

import pytest
from tests.runtime.desks import (
    ADMIN,
    MEMBER,
    Reef,
    asked,
    invited_by,
    run,
    stranger,
)

from shoal.core.admission import admission_control
from shoal.core.admission.invitation_book import InvitationTerms
from shoal.core.membership.members import Admission, Members
from shoal.model.ids import OwnerId, RequestId
from shoal.net.identity.identity import verify
from shoal.net.joining.invitations import Invitation, key_print
from shoal.protocol.admission import InvitationGiven, InvitationTaken
from shoal.protocol.admission_proofs import secret_digest
from shoal.protocol.messages import AnyMessage, Refusal, Welcome
from shoal.runtime.admission.admission_desk import AdmissionDesk
from shoal.runtime.membership.grant_signing import ROLES


def test_whoever_is_let_in_by_a_stand_in_has_a_grant_that_holds(tmp_path: Path) -> None:
    async def story() -> None:
        reef = Reef(tmp_path)
        root = reef.found("root")
        await reef.join("admin", root, ADMIN)
        gate = await reef.join("gate", root, MEMBER)
        terms = InvitationTerms(roles=("worker",), owner=OwnerId("alice"), quota_gpus=2)
        invitation = await invited_by(root, terms)
        await reef.leave("root")

        answer = await asked(gate, stranger("ann", tmp_path), invitation)
        late = await asked(gate, stranger("bob", tmp_path), invitation)

        assert isinstance(answer, Welcome)
        members = Members("reef", reef.of["root"].root, verify)
        found = members.admit(answer.grant.node, answer.grant, time.time())
        assert isinstance(found, Admission)
        assert (found.roles, found.owner, found.quota_gpus) == (("worker",), "alice", 2)
        assert isinstance(late, Refusal)
        assert late.reason == "the invitation is used up: 1 of 1"

    run(story())


async def left_while_losing(
    lost: type[AnyMessage], folder: Path
) -> tuple[Reef, AdmissionDesk, Invitation]:
    """Let a node leave that has invited one, and an admin that may stand in."""
    reef = Reef(folder)
    root = reef.found("root")
    admin = await reef.join("admin", root, ADMIN)
    invitation = await invited_by(root, MEMBER)
    reef.loses = lost
    await reef.leave("root")
    assert len(reef.lost) == 1
    return reef, admin, invitation


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission_control, "HAND_OVER_S", 0.01)


@pytest.mark.usefixtures("hasty")
def test_what_never_arrived_is_taken_back(tmp_path: Path) -> None:
    async def story() -> None:
        reef, admin, invitation = await left_while_losing(InvitationGiven, tmp_path)

        away = await asked(admin, stranger("ann", tmp_path), invitation)
        back = await asked(reef.back("root"), stranger("ann", tmp_path), invitation)

        assert isinstance(away, Refusal)
        assert away.retry_in_s is not None
        assert away.reason.endswith("is not connected")
        assert isinstance(back, Welcome)

    run(story())


@pytest.mark.usefixtures("hasty")
def test_if_only_the_answer_was_lost_it_is_not_taken_back(tmp_path: Path) -> None:
    async def story() -> None:
        reef, admin, invitation = await left_while_losing(InvitationTaken, tmp_path)

        first = await asked(admin, stranger("ann", tmp_path), invitation)
        late = await asked(reef.back("root"), stranger("bob", tmp_path), invitation)

        assert isinstance(first, Welcome)
        assert isinstance(late, Refusal)
        assert late.reason == "the invitation is used up: 1 of 1"

    run(story())


def test_a_member_that_is_no_admin_can_give_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        reef = Reef(tmp_path)
        root = reef.found("root")
        await reef.join("gate", root, MEMBER)
        secret, ann = b"\x02" * 16, stranger("ann", tmp_path)
        forged = InvitationGiven(
            request=RequestId("r"),
            digest=secret_digest(secret),
            roles=ROLES["admin"],
            uses=1,
            ends_in_s=60.0,
            valid_for_s=60.0,
        )
        reef.tell("root", "gate", forged)

        own = key_print(reef.of["root"].grant.node)
        where = ("/ip4/127.0.0.1/tcp/1",)
        answer = await asked(root, ann, Invitation("reef", own, secret, 0, where))

        assert isinstance(answer, Refusal)
        assert answer.reason == "no such invitation"

    run(story())
