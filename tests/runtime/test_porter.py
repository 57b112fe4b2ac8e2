"""Who comes without an invitation waits until somebody decides."""

from pathlib import Path

import msgspec
import pytest
from tests.runtime.desks import MEMBER, Reef, run, stranger

from shoal.model.ids import NodeId, OwnerId, RequestId
from shoal.net.requests import commitment
from shoal.protocol.messages import Refusal, Welcome
from shoal.protocol.newcomers import AdmissionHeard, AdmissionWanted
from shoal.runtime.reception import Reception

NEAR = "192.168.1.9"
FAR = "8.8.8.8"
NONCE = b"n" * 16


def knock(
    desk: Reception, host: NodeId, newcomer: NodeId, address: str = NEAR
) -> Welcome | Refusal:
    """Ask to be let in, as a newcomer does who has told its number."""
    promised = commitment(NONCE, newcomer, host)
    wanted = AdmissionWanted(request=RequestId("r"), commitment=promised, has="2 CPU")
    heard = desk.porter(newcomer, wanted, address)
    assert isinstance(heard, AdmissionHeard)
    wanted = msgspec.structs.replace(wanted, nonce=NONCE)
    answer = desk.porter(newcomer, wanted, address)
    assert not isinstance(answer, AdmissionHeard)
    return answer


def test_who_asks_is_told_of_once_and_let_in_when_somebody_says_so(
    tmp_path: Path,
) -> None:
    reef, ann = Reef(tmp_path), stranger("ann", tmp_path)
    desk, host = reef.found("root"), reef.of["root"].grant.node
    said: list[str] = []
    desk.porter.say = said.append

    first, second = knock(desk, host, ann), knock(desk, host, ann)
    [waiting] = desk.porter.waiting
    decided = desk.porter.decide(ann, accepted=True)
    last = knock(desk, host, ann)

    assert isinstance(first, Refusal)
    assert isinstance(second, Refusal)
    assert len(said) == 1
    assert "type the code that its screen shows" in said[0]
    assert waiting.code not in said[0], "it is to be read on the other screen"
    assert decided
    assert isinstance(last, Welcome)
    assert last.grant.roles == MEMBER.roles
    assert desk.porter.waiting == []


@pytest.mark.parametrize("owner", [None, OwnerId("bob")])
def test_who_is_let_in_has_the_owner_that_was_said_or_is_its_own(
    tmp_path: Path, owner: OwnerId | None
) -> None:
    reef, ann = Reef(tmp_path), stranger("ann", tmp_path)
    desk, host = reef.found("root"), reef.of["root"].grant.node
    knock(desk, host, ann)

    desk.porter.decide(ann, accepted=True, owner=owner)
    welcome = knock(desk, host, ann)

    assert isinstance(welcome, Welcome)
    assert welcome.grant.owner == (owner or ann)


@pytest.mark.parametrize(("address", "is_let_in"), [(NEAR, True), (FAR, False)])
def test_on_an_open_lan_who_is_near_lends_without_being_asked(
    tmp_path: Path, address: str, *, is_let_in: bool
) -> None:
    reef, ann = Reef(tmp_path), stranger("ann", tmp_path)
    desk, host = reef.found("root"), reef.of["root"].grant.node
    desk.porter.open_lan = True

    answer = knock(desk, host, ann, address)

    assert isinstance(answer, Welcome) == is_let_in
    if isinstance(answer, Welcome):
        assert answer.grant.roles == ("worker",)


def test_a_node_that_may_let_nobody_in_says_so(tmp_path: Path) -> None:
    async def story() -> None:
        reef, ann = Reef(tmp_path), stranger("ann", tmp_path)
        member = await reef.join("member", reef.found("root"), MEMBER)
        wanted = AdmissionWanted(request=RequestId("r"), commitment=b"c" * 32)

        answer = member.porter(ann, wanted, NEAR)

        assert isinstance(answer, Refusal)
        assert "neither invite nor revoke" in answer.reason

    run(story())
