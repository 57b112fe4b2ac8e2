"""Who comes without an invitation waits until somebody decides."""

from pathlib import Path

import msgspec
import pytest
from tests.runtime.desks import MEMBER, Reef, run, stranger

from shoal.core.events import MessageReceived
from shoal.model.ids import NodeId, OwnerId, RequestId
from shoal.protocol.admission import AdmissionHeard, AdmissionWanted
from shoal.protocol.admission_proofs import commitment
from shoal.protocol.messages import Refusal, Welcome
from shoal.runtime.admission.admission_desk import AdmissionDesk

NEAR = "192.168.1.9"
FAR = "8.8.8.8"
NONCE = b"n" * 16


async def knock(
    desk: AdmissionDesk, host: NodeId, newcomer: NodeId, address: str = NEAR
) -> Welcome | Refusal:
    """Ask to be let in, as a newcomer does who has told its number."""
    promised = commitment(NONCE, newcomer, host)
    wanted = AdmissionWanted(request=RequestId("r"), commitment=promised, has="2 CPU")
    heard = await desk(newcomer, wanted, address)
    assert isinstance(heard, AdmissionHeard)
    wanted = msgspec.structs.replace(wanted, nonce=NONCE)
    answer = await desk(newcomer, wanted, address)
    assert not isinstance(answer, AdmissionHeard)
    return answer


def test_a_newcomer_is_announced_once_and_let_in_when_somebody_says_so(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        reef, ann = Reef(tmp_path), stranger("ann", tmp_path)
        desk, host = reef.found("root"), reef.of["root"].grant.node
        said = reef.node("root").said

        first, second = await knock(desk, host, ann), await knock(desk, host, ann)
        [waiting] = desk.waiting
        desk.decide(ann, accepted=True)
        last = await knock(desk, host, ann)

        assert isinstance(first, Refusal)
        assert isinstance(second, Refusal)
        assert len(said) == 1
        assert "type the code that its screen shows" in said[0]
        assert waiting.code not in said[0], "it is to be read on the other screen"
        assert isinstance(last, Welcome)
        assert last.grant.roles == MEMBER.roles
        assert desk.waiting == []

    run(story())


def test_a_newcomer_that_somebody_declined_is_not_let_in(tmp_path: Path) -> None:
    async def story() -> None:
        reef, ann = Reef(tmp_path), stranger("ann", tmp_path)
        desk, host = reef.found("root"), reef.of["root"].grant.node
        await knock(desk, host, ann)

        desk.decide(ann, accepted=False)
        answer = await knock(desk, host, ann)

        assert isinstance(answer, Refusal)
        assert answer.reason == "somebody there said no"

    run(story())


@pytest.mark.parametrize("owner", [None, OwnerId("bob")])
def test_who_is_let_in_has_the_owner_that_was_said_or_is_its_own(
    tmp_path: Path, owner: OwnerId | None
) -> None:
    async def story() -> None:
        reef, ann = Reef(tmp_path), stranger("ann", tmp_path)
        desk, host = reef.found("root"), reef.of["root"].grant.node
        await knock(desk, host, ann)

        desk.decide(ann, accepted=True, owner=owner)
        welcome = await knock(desk, host, ann)

        assert isinstance(welcome, Welcome)
        assert welcome.grant.owner == (owner or ann)

    run(story())


@pytest.mark.parametrize(
    ("address", "was_revoked", "is_let_in"),
    [(NEAR, False, True), (NEAR, True, False), (FAR, False, False)],
)
def test_on_an_open_lan_who_is_near_and_was_never_revoked_lends_without_being_asked(
    tmp_path: Path, address: str, *, was_revoked: bool, is_let_in: bool
) -> None:
    async def story() -> None:
        reef, ann = Reef(tmp_path), stranger("ann", tmp_path)
        desk = reef.found("root", open_lan=True)
        node = reef.node("root")
        if was_revoked:
            node.feed(MessageReceived(node.id, node.granting.revocation(ann)))

        answer = await knock(desk, node.id, ann, address)

        assert isinstance(answer, Welcome) == is_let_in
        if isinstance(answer, Welcome):
            assert answer.grant.roles == ("worker",)

    run(story())


def test_a_node_that_may_let_nobody_in_says_so(tmp_path: Path) -> None:
    async def story() -> None:
        reef, ann = Reef(tmp_path), stranger("ann", tmp_path)
        member = await reef.join("member", reef.found("root"), MEMBER)
        wanted = AdmissionWanted(request=RequestId("r"), commitment=b"c" * 32)

        answer = await member(ann, wanted, NEAR)

        assert isinstance(answer, Refusal)
        assert "neither invite nor revoke" in answer.reason

    run(story())
