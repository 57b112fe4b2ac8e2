"""A shoal of desks that hear each other, and newcomers who ask there."""

import asyncio
import time
from collections.abc import Awaitable
from pathlib import Path

import msgspec

from shoal.core.membership import Admission, Members
from shoal.core.roster import Roster
from shoal.model.ids import NodeId, OwnerId, RequestId
from shoal.net.identity import Identity, verify
from shoal.net.invitations import Invitation, Terms, decode, joining, proof_of
from shoal.protocol.messages import AnyMessage, Join, Refusal, Welcome
from shoal.runtime import membership
from shoal.runtime.granting import ROLES
from shoal.runtime.home import Home
from shoal.runtime.membership import Membership
from shoal.runtime.reception import Reception

MEMBER = Terms(roles=ROLES["member"], owner=OwnerId(""))
ADMIN = Terms(roles=ROLES["admin"], owner=OwnerId(""))


class Reef:
    """Desks of one shoal that are linked all round, as long as they are there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.desks: dict[NodeId, Reception] = {}
        self.rosters: dict[str, Roster] = {}
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
        roster = Roster(self.of[name].members(), time.time())
        self.rosters[name] = roster
        desk = Reception(home, identity, self.of[name], roster)
        others = desk.company
        others.linked = lambda: [node for node in self.desks if node != identity.node]
        others.admission = self.admission
        others.links = Sending(self, identity.node)  # type: ignore[assignment]
        self.desks[identity.node] = desk
        return desk

    async def leave(self, name: str) -> None:
        node = self.of[name].grant.node
        await self.desks[node].standing_in.hand_over()
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
