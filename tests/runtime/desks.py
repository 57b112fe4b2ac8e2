"""A shoal of desks that hear each other, and newcomers who ask there."""

import asyncio
import time
from collections.abc import Awaitable
from pathlib import Path

import msgspec

from shoal.core.admission.admission_control import AdmissionControl
from shoal.core.admission.invitation_book import InvitationTerms
from shoal.core.durability.journal import Entry
from shoal.core.events import (
    Effect,
    Event,
    MessageReceived,
    PeerConnected,
    PeerLost,
    Send,
)
from shoal.core.membership.membership import Membership
from shoal.core.membership.roster import Roster
from shoal.core.peer import Peer
from shoal.model.ids import NodeId, OwnerId, RequestId
from shoal.net.identity.identity import Identity
from shoal.net.joining.invitations import Invitation, decode
from shoal.protocol.admission_proofs import joining, proof_of
from shoal.protocol.messages import AnyMessage, Join, Refusal, Welcome
from shoal.runtime.admission.admission_desk import (
    TOOLS,
    AdmissionDesk,
    load_invitations,
)
from shoal.runtime.durability.audit_log import AuditLog
from shoal.runtime.home import Home
from shoal.runtime.host import Host
from shoal.runtime.membership import shoal_membership
from shoal.runtime.membership.grant_signing import ROLES, GrantSigner
from shoal.runtime.membership.shoal_membership import ShoalMembership

MEMBER = InvitationTerms(roles=ROLES["member"], owner=OwnerId(""))
ADMIN = InvitationTerms(roles=ROLES["admin"], owner=OwnerId(""))


class Paper:
    """A journal that is on disk at once."""

    def __init__(self) -> None:
        self.host: Host | None = None
        self.number = 0

    def append(self, entry: Entry, *, durable: bool, within_s: float = 0.0) -> int:
        """Note that it is safe, as soon as the machine has had its turn."""
        self.number += 1
        assert self.host is not None
        asyncio.get_running_loop().call_soon(self.host.synced, self.number)
        return self.number


class DeskNode:
    """What a desk sees of its node: one machine behind the membership, and its host."""

    def __init__(self, reef: "Reef", name: str, *, open_lan: bool) -> None:
        self.reef = reef
        self.home, self.identity = reef.home(name)
        self.id = self.identity.node
        self.membership = reef.of[name]
        self.audit = AuditLog(self.home)
        now = asyncio.get_running_loop().time()
        self.roster = Roster(self.membership.members(), time.time() - now)
        self.granting = GrantSigner(
            self.home, self.identity, self.membership, self.roster
        )
        self.admission_control = AdmissionControl(
            self.id,
            self.roster,
            self.membership.grant,
            TOOLS,
            kept=load_invitations(self.home),
            may_sign=self.granting.is_allowed,
            open_lan=open_lan,
        )
        members = Membership(self.id, self.roster, self.membership.grant)
        peer = Peer(members, [self.admission_control])
        paper = Paper()
        self.host = Host()
        self.host.start(peer, paper, self._perform, on_failure=self._fail)
        paper.host = self.host
        self.said: list[str] = []
        self.desk = AdmissionDesk(self, (), self.said.append)  # type: ignore[arg-type]

    def feed(self, event: Event) -> None:
        self.host.feed(event)

    def _perform(self, effect: Effect) -> None:
        if isinstance(effect, Send):
            self.reef.carry(self.id, effect.peer, effect.message)
        elif type(effect) in self.desk.performers:
            self.desk.performers[type(effect)](effect)

    def _fail(self, error: BaseException) -> None:
        raise AssertionError("a machine never raises") from error


class Reef:
    """Desks of one shoal that are linked all round, as long as they are there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.nodes: dict[NodeId, DeskNode] = {}
        self.of: dict[str, ShoalMembership] = {}
        self.lost: list[AnyMessage] = []
        self.loses: type[AnyMessage] | None = None

    def found(self, name: str, *, open_lan: bool = False) -> AdmissionDesk:
        home, identity = self.home(name)
        self.of[name] = shoal_membership.found(home, identity, "reef")
        return self.back(name, open_lan=open_lan)

    async def join(
        self, name: str, at: AdmissionDesk, terms: InvitationTerms
    ) -> AdmissionDesk:
        home, identity = self.home(name)
        answer = await asked(at, identity.node, await invited_by(at, terms))
        assert isinstance(answer, Welcome)
        root = next(iter(self.of.values())).root
        self.of[name] = ShoalMembership(shoal="reef", root=root, grant=answer.grant)
        shoal_membership.save(home, self.of[name])
        return self.back(name)

    def back(self, name: str, *, open_lan: bool = False) -> AdmissionDesk:
        """Start the next life of a node, and link it to all others."""
        node = DeskNode(self, name, open_lan=open_lan)
        self.nodes.pop(node.id, None)
        for other in self.nodes.values():
            other.feed(PeerConnected(node.id, node.membership.grant))
            node.feed(PeerConnected(other.id, other.membership.grant))
        self.nodes[node.id] = node
        return node.desk

    async def leave(self, name: str) -> None:
        gone = self.node(name)
        await gone.desk.hand_over()
        del self.nodes[gone.id]
        for other in self.nodes.values():
            other.feed(PeerLost(gone.id))

    def node(self, name: str) -> DeskNode:
        return self.nodes[self.of[name].grant.node]

    def tell(self, name: str, source: str, message: AnyMessage) -> None:
        """Let one node hear what another says."""
        peer = self.of[source].grant.node
        self.node(name).feed(MessageReceived(peer, message))

    def carry(self, source: NodeId, target: NodeId, message: AnyMessage) -> None:
        if self.loses is type(message):
            self.lost.append(message)
        elif target in self.nodes:
            self.nodes[target].feed(MessageReceived(source, message))

    def home(self, name: str) -> tuple[Home, Identity]:
        home = Home(self.folder / name)
        home.prepare()
        return home, Identity.load_or_create(home.key)


async def invited_by(
    desk: AdmissionDesk, terms: InvitationTerms, uses: int = 1
) -> Invitation:
    where = ["/ip4/127.0.0.1/tcp/1"]
    return decode(await desk.invite(terms, uses=uses, ttl_s=60.0, addresses=where))


async def asked(
    desk: AdmissionDesk, newcomer: NodeId, invitation: Invitation
) -> Welcome | Refusal:
    """Ask at a desk as a newcomer does, who shows the secret to its inviter only."""
    join = Join(request=RequestId("r"), secret=b"", inviter=invitation.key_print)
    proof = proof_of(invitation.secret, joining(newcomer))
    answer = await desk(newcomer, msgspec.structs.replace(join, proof=proof))
    assert isinstance(answer, Welcome | Refusal)
    return answer


def run(story: Awaitable[None]) -> None:
    async def main() -> None:
        await story

    asyncio.run(main())


def stranger(name: str, folder: Path) -> NodeId:
    home = Home(folder / name)
    home.prepare()
    return Identity.load_or_create(home.key).node
