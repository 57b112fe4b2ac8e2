"""One node at a time redeems an invitation, whatever gets lost."""

import asyncio
import hashlib
import time
from collections.abc import Awaitable
from pathlib import Path

import msgspec
import pytest

from shoal.core.membership import Admission, Members
from shoal.model.ids import NodeId, OwnerId, RequestId
from shoal.net.identity import Identity, verify
from shoal.net.invitations import (
    Invitation,
    Terms,
    decode,
    joining,
    key_print,
    proof_of,
)
from shoal.protocol.messages import AnyMessage, Join, Refusal, Welcome
from shoal.protocol.newcomers import InvitationGiven, InvitationTaken
from shoal.runtime import membership, reception
from shoal.runtime.home import Home
from shoal.runtime.membership import Membership
from shoal.runtime.reception import ROLES, Reception

MEMBER = Terms(roles=ROLES["member"], owner=OwnerId(""))


class Reef:
    """Desks of one shoal that are linked all round, as long as they are there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.desks: dict[NodeId, Reception] = {}
        self.of: dict[str, Membership] = {}
        self.lost: list[AnyMessage] = []
        self.loses: type[AnyMessage] | None = None

    def found(self, name: str) -> Reception:
        home, identity = self._home(name)
        self.of[name] = membership.found(home, identity, "reef")
        return self.back(name)

    async def join(self, name: str, at: Reception, terms: Terms) -> Reception:
        home, identity = self._home(name)
        answer = await asked(at, identity.node, invited_by(at, terms))
        assert isinstance(answer, Welcome)
        root = next(iter(self.of.values())).root
        self.of[name] = Membership(shoal="reef", root=root, grant=answer.grant)
        membership.save(home, self.of[name])
        return self.back(name)

    def back(self, name: str) -> Reception:
        """Start the next life of a node."""
        home, identity = self._home(name)
        desk = Reception(home, identity, self.of[name])
        desk.linked = lambda: [node for node in self.desks if node != identity.node]
        desk.admission = self.admission
        desk.links = Sending(self, identity.node)  # type: ignore[assignment]
        self.desks[identity.node] = desk
        return desk

    async def leave(self, name: str) -> None:
        node = self.of[name].grant.node
        await self.desks[node].hand_over()
        del self.desks[node]

    def admission(self, node: NodeId) -> Admission | None:
        for belongs in self.of.values():
            if belongs.grant.node == node:
                members = Members("reef", belongs.root, verify)
                found = members.admit(node, belongs.grant, time.time())
                return None if isinstance(found, str) else found
        return None

    def _home(self, name: str) -> tuple[Home, Identity]:
        home = Home(self.folder / name)
        home.prepare()
        return home, Identity.load_or_create(home.key)


class Sending:
    """The links of one node of a reef."""

    def __init__(self, reef: Reef, node: NodeId) -> None:
        self.reef, self.node = reef, node

    def send(self, peer: NodeId, message: AnyMessage) -> None:
        if self.reef.loses is type(message):
            self.reef.lost.append(message)
        elif peer in self.reef.desks:
            desk = self.reef.desks[peer]
            asyncio.get_running_loop().call_soon(desk.take, self.node, message)


def invited_by(desk: Reception, terms: Terms, uses: int = 1) -> Invitation:
    where = ["/ip4/127.0.0.1/tcp/1"]
    return decode(desk.invite(terms, uses=uses, ttl_s=60.0, addresses=where))


async def asked(
    desk: Reception, newcomer: NodeId, invitation: Invitation
) -> Welcome | Refusal:
    """Ask at a desk as a newcomer does, who shows the secret to its inviter only."""
    join = Join(request=RequestId("r"), secret=b"", inviter=invitation.key_print)
    return await desk(
        newcomer,
        msgspec.structs.replace(
            join, proof=proof_of(invitation.secret, joining(newcomer))
        ),
    )


def run(story: Awaitable[None]) -> None:
    async def main() -> None:
        await story

    asyncio.run(main())


def stranger(name: str, folder: Path) -> NodeId:
    home = Home(folder / name)
    home.prepare()
    return Identity.load_or_create(home.key).node


def test_an_invitation_is_kept_over_a_restart_and_so_is_who_came(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        reef, ann = Reef(tmp_path), stranger("ann", tmp_path)
        invitation = invited_by(reef.found("root"), MEMBER, uses=2)
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


def test_whoever_is_let_in_by_a_stand_in_has_a_grant_that_holds(tmp_path: Path) -> None:
    async def story() -> None:
        reef = Reef(tmp_path)
        root = reef.found("root")
        admin_terms = Terms(roles=ROLES["admin"], owner=OwnerId(""))
        await reef.join("admin", root, admin_terms)
        gate = await reef.join("gate", root, MEMBER)
        terms = Terms(roles=("worker",), owner=OwnerId("alice"), quota_gpus=2)
        invitation = invited_by(root, terms)
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


def test_what_never_arrived_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reception, "HAND_OVER_S", 0.01)

    async def story() -> None:
        reef = Reef(tmp_path)
        root = reef.found("root")
        admin_terms = Terms(roles=ROLES["admin"], owner=OwnerId(""))
        admin = await reef.join("admin", root, admin_terms)
        invitation = invited_by(root, MEMBER)
        reef.loses = InvitationGiven
        await reef.leave("root")

        away = await asked(admin, stranger("ann", tmp_path), invitation)
        back = await asked(reef.back("root"), stranger("ann", tmp_path), invitation)

        assert len(reef.lost) == 1
        assert isinstance(away, Refusal)
        assert away.retry_in_s is not None
        assert away.reason.endswith("is not connected")
        assert isinstance(back, Welcome)

    run(story())


def test_if_only_the_answer_was_lost_it_is_not_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reception, "HAND_OVER_S", 0.01)

    async def story() -> None:
        reef = Reef(tmp_path)
        root = reef.found("root")
        admin_terms = Terms(roles=ROLES["admin"], owner=OwnerId(""))
        admin = await reef.join("admin", root, admin_terms)
        invitation = invited_by(root, MEMBER)
        reef.loses = InvitationTaken
        await reef.leave("root")
        first = await asked(admin, stranger("ann", tmp_path), invitation)

        late = await asked(reef.back("root"), stranger("bob", tmp_path), invitation)

        assert len(reef.lost) == 1
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
        digest = hashlib.sha256(b"shoal-invitation-v1\0" + secret).digest()
        forged = InvitationGiven(
            request=RequestId("r"),
            digest=digest,
            roles=ROLES["admin"],
            uses=1,
            ends_in_s=60.0,
            valid_for_s=60.0,
        )
        root.take(reef.of["gate"].grant.node, forged)

        own = key_print(reef.of["root"].grant.node)
        where = ("/ip4/127.0.0.1/tcp/1",)
        answer = await asked(root, ann, Invitation("reef", own, secret, 0, where))

        assert isinstance(answer, Refusal)
        assert answer.reason == "no such invitation"

    run(story())
