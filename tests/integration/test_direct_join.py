import time

import msgspec
import pytest
from tests.integration.direct_nodes import Node, eventually, node, numbered, run
from tests.unit.net.shoals import Gatekeeper, granted, identity

from shoal.core.admission.invitation_book import (
    UNKNOWN,
    InvitationBook,
    InvitationTerms,
    OpenInvitation,
)
from shoal.errors import ShoalError
from shoal.model.ids import NodeId, OwnerId
from shoal.net.joining.invitations import (
    Invitation,
    encode,
    key_print,
    new_secret,
)
from shoal.net.joining.join import invitation_of, join
from shoal.protocol.admission import AdmissionWanted
from shoal.protocol.admission_proofs import joining, proof_of, secret_digest
from shoal.protocol.messages import Join, PeerAddress, Refusal, Welcome

pytestmark = pytest.mark.integration
NEWCOMER = identity(50)
TERMS = InvitationTerms(roles=("worker",), owner=OwnerId("bob"))


class Reception:
    """Answers newcomers as a host does: by the book, with the key of an admin."""

    def __init__(self) -> None:
        self.book = InvitationBook()
        self.peers: tuple[PeerAddress, ...] = ()
        self.names: list[str] = []
        self.asked: list[Join] = []

    async def __call__(
        self, peer: NodeId, join: Join | AdmissionWanted, address: str
    ) -> Welcome | Refusal:
        assert isinstance(join, Join)
        self.names.append(join.name)
        self.asked.append(join)
        found = self.book.proved(proof_of(join.secret, joining(peer)), peer)
        refused = UNKNOWN
        if found is not None:
            refused = self.book.redeem(found, peer, time.monotonic(), -1)
        if refused:
            return Refusal(request=join.request, reason=refused)
        grant = granted(peer, roles=TERMS.roles, owner=TERMS.owner)
        return Welcome(request=join.request, grant=grant, peers=self.peers)


def invited(host: Node, reception: Reception, uses: int = 1) -> Invitation:
    secret = new_secret()
    now = time.monotonic()
    one = OpenInvitation(secret_digest(secret), TERMS, uses, now + 60.0, [])
    reception.book.take(one, now)
    invitation = Invitation(
        shoal="reef",
        key_print=key_print(host.id),
        secret=secret,
        expires_wall_s=int(time.time()) + 60,
        addresses=host.links.addresses,
    )
    return invitation_of(encode(invitation))


def test_who_was_invited_becomes_a_member_and_can_talk() -> None:
    async def main() -> None:
        reception = Reception()
        ann = await node(1, desk=reception)
        invitation = invited(ann, reception)

        joined = await join(NEWCOMER, invitation, name="old-crow")
        crow = await node(50, grant=joined.welcome.grant)
        crow.know(ann)
        crow.say(ann, numbered(1))
        await eventually(lambda: ann.heard(crow))

        assert joined.inviter == ann.id
        assert reception.names == ["old-crow"]
        assert Gatekeeper()(NEWCOMER.node, joined.welcome.grant) is None
        assert ann.links.counts["joined"] == 1

    run(main())


def test_an_invitation_that_is_used_up_lets_nobody_in() -> None:
    async def main() -> None:
        reception = Reception()
        ann = await node(1, desk=reception)
        invitation = invited(ann, reception)
        await join(NEWCOMER, invitation)

        with pytest.raises(ShoalError) as refusal:
            await join(identity(51), invitation)

        assert "the invitation is used up: 1 of 1" in refusal.value.because
        assert (await join(NEWCOMER, invitation)).welcome.grant.node == NEWCOMER.node

    run(main())


def test_the_secret_is_never_told_to_another_node() -> None:
    async def main() -> None:
        honest, impostor = Reception(), Reception()
        ann, eve = await node(1, desk=honest), await node(3, desk=impostor)
        told = invited(ann, honest)
        wrong = Invitation(
            told.shoal,
            told.key_print,
            told.secret,
            told.expires_wall_s,
            eve.links.addresses,
        )

        with pytest.raises(ShoalError, match="no such invitation"):
            await join(NEWCOMER, wrong)

        (asked,) = impostor.asked
        assert asked.secret == b""
        assert told.secret not in asked.proof
        assert honest.book.proved(asked.proof, eve.id) is None

    run(main())


def test_a_welcome_that_whoever_invited_did_not_give_is_refused() -> None:
    async def forge(
        peer: NodeId, join: Join | AdmissionWanted, address: str
    ) -> Welcome | Refusal:
        grant = granted(peer, signer=identity(3))
        return Welcome(request=join.request, grant=grant, proof=b"\x01" * 32)

    async def main() -> None:
        honest = Reception()
        ann, eve = await node(1, desk=honest), await node(3, desk=forge)
        told = invited(ann, honest)
        wrong = msgspec.structs.replace(told, addresses=eve.links.addresses)

        with pytest.raises(ShoalError, match="did not invite us"):
            await join(NEWCOMER, wrong)

    run(main())


def test_a_node_without_a_desk_takes_nobody_in() -> None:
    async def main() -> None:
        ann = await node(1)

        with pytest.raises(ShoalError, match="no grant: join with an invitation"):
            await join(NEWCOMER, invited(ann, Reception()))

        assert ann.log.events == []

    run(main())


def test_one_address_that_answers_is_enough() -> None:
    async def main() -> None:
        reception = Reception()
        ann, gone = await node(1, desk=reception), await node(9)
        told = invited(ann, reception)
        await gone.links.close()
        several = Invitation(
            told.shoal,
            told.key_print,
            told.secret,
            told.expires_wall_s,
            (*gone.links.addresses, *told.addresses),
        )

        joined = await join(NEWCOMER, several)

        assert joined.inviter == ann.id

    run(main())


def test_joining_fails_with_a_reason_when_nobody_answers() -> None:
    async def main() -> None:
        reception = Reception()
        ann = await node(1, desk=reception)
        invitation = invited(ann, reception)
        await ann.links.close()

        with pytest.raises(ShoalError, match="could not join 'reef'") as refusal:
            await join(NEWCOMER, invitation)

        assert refusal.value.hint

    run(main())
