"""Who brings an invitation is let in, as often as it says and no more."""

import asyncio
from pathlib import Path

import msgspec
from tests.runtime.desks import MEMBER, Reef, asked, invited_by, run, stranger

from shoal.core.durability.audit_chain import read
from shoal.core.events import MessageReceived
from shoal.model.ids import RequestId
from shoal.protocol.messages import Refusal, Welcome
from shoal.runtime.durability.audit_log import lines
from shoal.runtime.home import Home


def test_an_invitation_is_kept_over_a_restart_and_so_is_who_came(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        reef, ann = Reef(tmp_path), stranger("ann", tmp_path)
        invitation = await invited_by(reef.found("root"), MEMBER, uses=2)
        assert isinstance(await asked(reef.back("root"), ann, invitation), Welcome)
        desk = reef.back("root")

        again = await asked(desk, ann, invitation)
        other = await asked(desk, stranger("bob", tmp_path), invitation)
        late = await asked(desk, stranger("eve", tmp_path), invitation)

        assert isinstance(again, Welcome)
        assert isinstance(other, Welcome)
        assert isinstance(late, Refusal)
        assert late.reason == "the invitation is used up: 2 of 2"

    run(story())


def test_who_is_let_in_or_not_is_in_the_audit_log(tmp_path: Path) -> None:
    async def story() -> None:
        reef, ann = Reef(tmp_path), stranger("ann", tmp_path)
        desk = reef.found("root")
        invitation = await invited_by(desk, MEMBER)
        await asked(desk, ann, invitation)
        await asked(desk, stranger("eve", tmp_path), invitation)

    run(story())

    noted = [read(line) for line in lines(Home(tmp_path / "root"))]
    assert [(one.what, one.result) for one in noted if one is not None] == [
        ("let-in", "done"),
        ("join", "refused"),
    ]
    assert noted[0] is not None
    assert noted[0].target == stranger("ann", tmp_path)
    assert noted[0].because == "by an invitation, as scheduler, worker, gate"


def test_nobody_answers_an_introduction_in_the_place_of_another(tmp_path: Path) -> None:
    async def story() -> None:
        reef, ann = Reef(tmp_path), stranger("ann", tmp_path)
        root = reef.found("root")
        gate = await reef.join("gate", root, MEMBER)
        await reef.join("eve", root, MEMBER)
        guessed = RequestId(f"{reef.of['gate'].grant.node}/introduction/1")
        invitation = await invited_by(root, MEMBER)

        asking = asyncio.create_task(asked(gate, ann, invitation))
        await asyncio.sleep(0)  # The question is on its way.
        no = Refusal(request=guessed, reason="you are not wanted")
        reef.tell("gate", "eve", no)
        reef.tell("gate", "eve", Welcome(request=guessed, grant=reef.of["eve"].grant))
        answer = await asking

        assert isinstance(answer, Welcome)
        assert answer.grant.node == ann

    run(story())


def test_who_shows_wrong_secrets_waits_and_is_not_heard_with_the_right_one(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        reef, eve = Reef(tmp_path), stranger("eve", tmp_path)
        desk = reef.found("root")
        right = await invited_by(desk, MEMBER, uses=2)
        wrong = msgspec.structs.replace(right, secret=b"w" * 16)
        for _ in range(10):
            guessed = await asked(desk, eve, wrong)
            assert isinstance(guessed, Refusal)
            assert guessed.reason == "no such invitation"

        late = await asked(desk, eve, right)

        assert isinstance(late, Refusal)
        assert late.retry_in_s is not None
        assert late.reason == "too many wrong secrets from this address"

    run(story())


def test_a_revoked_node_is_not_let_in_again_by_its_old_invitation(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        reef, ann = Reef(tmp_path), stranger("ann", tmp_path)
        root = reef.found("root")
        old = await invited_by(root, MEMBER, uses=3)
        assert isinstance(await asked(root, ann, old), Welcome)
        node = reef.node("root")
        node.feed(MessageReceived(node.id, node.granting.revocation(ann)))

        again = await asked(root, ann, old)
        other = await asked(root, stranger("bob", tmp_path), old)
        newer = await invited_by(root, MEMBER)
        pardoned = await asked(root, ann, newer)

        assert isinstance(again, Refusal)
        assert "revoked" in again.reason
        assert isinstance(other, Welcome), "nobody else is affected"
        assert isinstance(pardoned, Welcome)

    run(story())
