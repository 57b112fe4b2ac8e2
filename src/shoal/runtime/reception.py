"""The desk of a node, where others are let into the shoal.

    reception      invitations given out here, and those who bring one
    porter         those who come without one
    standing_in    invitations that change hands between admins
    granting       what this node signs: grants and revocations
    company        the other members, and questions to them

Who was invited by a node that cannot be dialled asks at a gate, which introduces it to
that node and passes the answer back.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.core.auditing import Entry
from shoal.errors import ShoalError
from shoal.model.ids import NodeId
from shoal.net.guesses import Guesses
from shoal.net.invitations import (
    UNKNOWN,
    Invitation,
    encode,
    joining,
    key_print,
    new_secret,
    proof_by_hash,
    proof_of,
    welcoming,
)
from shoal.net.petname import petname
from shoal.protocol.messages import Introduction, Refusal, Welcome
from shoal.protocol.newcomers import InvitationGiven, InvitationTaken
from shoal.runtime import invited
from shoal.runtime.audit import Audit, let_in
from shoal.runtime.company import Company
from shoal.runtime.granting import Granting
from shoal.runtime.porter import Porter
from shoal.runtime.standing_in import StandingIn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.core.roster import Roster
    from shoal.model.ids import RequestId
    from shoal.net.identity import Identity
    from shoal.net.invitations import Open, Terms
    from shoal.protocol.messages import AnyMessage, Join
    from shoal.runtime.home import Home
    from shoal.runtime.membership import Membership

INTRODUCE_S: Final = 8.0
STAND_INS_MAX: Final = 8
RETRY_S: Final = 2.0


@final
class Reception:
    """Gives out invitations, and answers those who bring one."""

    def __init__(
        self,
        home: Home,
        identity: Identity,
        membership: Membership,
        roster: Roster,
        audit: Audit | None = None,
    ) -> None:
        self.granting = Granting(home, identity, membership, roster)
        self._audit = audit or Audit(home)
        self._guesses = Guesses()
        self.company = Company(identity.node)
        self.porter = Porter(
            identity.node, membership.shoal, self.granting, self.company, self._audit
        )
        self._home = home
        self._shoal = membership.shoal
        self._print = key_print(identity.node)
        self._book = invited.load(home)
        self.standing_in = StandingIn(home, self._book, self.granting, self.company)

    def invite(
        self, terms: Terms, *, uses: int, ttl_s: float, addresses: Sequence[str]
    ) -> str:
        """Return the text of a new invitation; raise if this node may invite nobody."""
        self.granting.check()
        if not addresses:
            raise ShoalError(
                "nobody could follow an invitation",
                because="this node listens nowhere",
                hint="restart it with --listen HOST:PORT",
            )
        secret = new_secret()
        self._book.add(secret, terms, uses=uses, ttl_s=ttl_s, now=time.time())
        invited.save(self._home, self._book)
        invitation = Invitation(
            shoal=self._shoal,
            key_print=self._print,
            secret=secret,
            expires_wall_s=int(time.time() + ttl_s),
            addresses=tuple(addresses),
        )
        return encode(invitation)

    @property
    def has_invited(self) -> bool:
        """Whether somebody may hold an invitation of this node."""
        return any(one.ends_at > time.time() for one in self._book)

    async def __call__(
        self, peer: NodeId, join: Join, address: str = ""
    ) -> Welcome | Refusal:
        """Answer whoever knows a secret, or have another node do so."""
        answer = await self._answered(peer, join, address)
        if isinstance(answer, Refusal):
            self._audit.note(_refused(peer, address, answer.reason))
            if answer.reason == UNKNOWN:
                self._guesses.wrong(address, time.monotonic())
        return answer

    async def _answered(
        self, peer: NodeId, join: Join, address: str
    ) -> Welcome | Refusal:
        if not self._guesses.may(address, time.monotonic()):
            return _not_now(join.request, "too many wrong secrets from this address")
        proof = join.proof or proof_of(join.secret, joining(peer))
        found = self._book.proved(proof, peer)
        if found is not None and found.given_to:
            return await self._send_on(found, peer, join, proof)
        if found is not None or join.inviter in (b"", self._print):
            return self._redeemed(join.request, proof, peer, address)
        return await self._introduce(peer, join)

    def take(self, peer: NodeId, message: AnyMessage) -> bool:
        """Take in what members say about newcomers; return whether it was that."""
        if isinstance(message, Introduction):
            self.company.tell(peer, self._on_introduction(message))
            return True
        if isinstance(message, InvitationGiven):
            self.company.tell(peer, self.standing_in.on_given(peer, message))
            return True
        if isinstance(message, Welcome | Refusal | InvitationTaken):
            return self.company.takes(peer, message)
        return False

    async def _introduce(self, newcomer: NodeId, join: Join) -> Welcome | Refusal:
        """Ask who gave the invitation out, or, if that is away, who may have it now."""
        company = self.company
        linked = company.linked()
        inviter = next((n for n in linked if key_print(n) == join.inviter), None)
        others = [n for n in linked if n != inviter and company.is_admin(n)]
        why = f"{company.name_of(join.inviter)} is not connected"
        for peer in [*([inviter] if inviter else []), *others[:STAND_INS_MAX]]:
            answer = await self._introduced(peer, newcomer, join.proof, join.name)
            if isinstance(answer, Welcome) or (
                answer.retry_in_s is None
                and (peer == inviter or answer.reason != UNKNOWN)
            ):
                return msgspec.structs.replace(answer, request=join.request)
            why = answer.reason if peer == inviter else why
        return _not_now(join.request, why)

    async def _send_on(
        self, found: Open, newcomer: NodeId, join: Join, proof: bytes
    ) -> Welcome | Refusal:
        """Ask the admin that we gave an invitation to; take it back if it has none."""
        holder = found.given_to
        if holder not in self.company.linked():
            name = petname(holder)
            return _not_now(join.request, f"{name}, who has it now, is not connected")
        answer = await self._introduced(holder, newcomer, proof, join.name)
        if isinstance(answer, Refusal) and answer.reason == UNKNOWN:
            found.given_to = NodeId("")
            return self._redeemed(join.request, proof, newcomer)
        return msgspec.structs.replace(answer, request=join.request)

    async def _introduced(
        self, peer: NodeId, newcomer: NodeId, proof: bytes, name: str
    ) -> Welcome | Refusal:
        request = self.company.next_request()
        introduction = Introduction(
            request=request, newcomer=newcomer, proof=proof, name=name
        )
        answer = await self.company.ask(peer, introduction, INTRODUCE_S)
        if isinstance(answer, Welcome | Refusal):
            return answer
        return _not_now(request, f"{petname(peer)} does not answer")

    def _on_introduction(self, message: Introduction) -> Welcome | Refusal:
        found = self._book.proved(message.proof, message.newcomer)
        if found is not None and found.given_to:
            name = petname(found.given_to)
            return _not_now(message.request, f"{name} has it now: ask there")
        return self._redeemed(message.request, message.proof, message.newcomer)

    def _redeemed(
        self, request: RequestId, proof: bytes, node: NodeId, address: str = ""
    ) -> Welcome | Refusal:
        """Let a newcomer in who showed a proof; on disk first that it was."""
        found = self._book.redeem_by_proof(proof, node, time.time())
        if isinstance(found, str):
            return Refusal(request=request, reason=found)
        terms, digest = found
        try:
            grant = self.granting.grant(node, terms)
            invited.save(self._home, self._book)
        except (ShoalError, OSError) as error:
            return Refusal(request=request, reason=str(error))
        self._audit.note(let_in(grant, address, "by an invitation"))
        shown = proof_by_hash(digest, welcoming(grant))
        peers = self.company.peers()
        return Welcome(request=request, grant=grant, peers=peers, proof=shown)


def _refused(peer: NodeId, address: str, reason: str) -> Entry:
    """Say that somebody could not join; it may have shown any key."""
    return Entry(
        what="join",
        result="refused",
        way="wire",
        node=peer,
        address=address,
        because=reason,
    )


def _not_now(request: RequestId, reason: str) -> Refusal:
    """Return a no that may be a yes when somebody is back."""
    return Refusal(request=request, reason=reason, retry_in_s=RETRY_S)
