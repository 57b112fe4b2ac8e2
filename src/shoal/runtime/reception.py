"""Lets others into the shoal: invitations given out here, and grants for who comes.

Who was invited by a node that cannot be dialled asks at a gate, which introduces it to
that node and passes the answer back.

At any time one node at most may redeem an invitation: that which gave it out, or the
admin to whom it gave it away when it left. So nobody has to agree with anybody on who
came first (docs/decisions/0017-one-node-redeems-an-invitation.md).
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from secrets import token_bytes
from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.core.membership import revocation_payload
from shoal.errors import NotAllowedError, ShoalError
from shoal.model.ids import NodeId, OwnerId, RequestId
from shoal.net.identity import Identity
from shoal.net.invitations import (
    UNKNOWN,
    Invitation,
    Open,
    Terms,
    encode,
    joining,
    key_print,
    new_secret,
    proof_by_hash,
    proof_of,
    welcoming,
)
from shoal.net.petname import petname
from shoal.net.requests import (
    NONCE_BYTES,
    REQUESTS_MAX,
    Asked,
    Requests,
    is_local,
)
from shoal.protocol.messages import Grant, Introduction, Refusal, Revocation, Welcome
from shoal.protocol.newcomers import (
    AdmissionHeard,
    AdmissionWanted,
    InvitationGiven,
    InvitationTaken,
)
from shoal.runtime import invited
from shoal.runtime.membership import issue

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shoal.core.membership import Admission
    from shoal.net.base import Links
    from shoal.protocol.messages import AnyMessage, Join, PeerAddress, Role
    from shoal.runtime.home import Home
    from shoal.runtime.membership import Membership

ROLES: Final[dict[str, tuple[Role, ...]]] = {
    "member": ("scheduler", "worker", "gate"),
    "worker": ("worker",),
    "submit": ("scheduler",),
    "admin": ("scheduler", "worker", "gate", "admin"),
}
"""What an invitation may be for, in the words of the command line."""

INTRODUCE_S: Final = 8.0
INTRODUCTIONS_MAX: Final = 64
"""Newcomers at one time who wait for the answer of another node."""

HAND_OVER_S: Final = 2.0
STAND_INS_MAX: Final = 8
RETRY_S: Final = 2.0

Answer = Welcome | Refusal | InvitationTaken


@final
class Reception:
    """The desk of a node: gives out invitations and answers those who bring one."""

    def __init__(self, home: Home, identity: Identity, membership: Membership) -> None:
        self._home = home
        self._identity = identity
        self._membership = membership
        self._book = invited.load(home)
        self.peers: Callable[[], tuple[PeerAddress, ...]] = tuple
        self.linked: Callable[[], Sequence[NodeId]] = tuple
        self.admission: Callable[[NodeId], Admission | None] = _nobody
        self.links: Links | None = None
        self.requests = Requests(identity.node, partial(token_bytes, NONCE_BYTES))
        self.open_lan = False  # whether anybody near may lend without being asked
        self.say: Callable[[str], None] = lambda _: None
        self._told: list[str] = []  # Codes that were said; at most REQUESTS_MAX.
        self._print = key_print(identity.node)
        self._introductions = 0
        self._waiting: dict[RequestId, asyncio.Future[Answer]] = {}

    def invite(
        self, terms: Terms, *, uses: int, ttl_s: float, addresses: Sequence[str]
    ) -> str:
        """Return the text of a new invitation; raise if this node may invite nobody."""
        self._signer()
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
            shoal=self._membership.shoal,
            key_print=key_print(self._identity.node),
            secret=secret,
            expires_wall_s=int(time.time() + ttl_s),
            addresses=tuple(addresses),
        )
        return encode(invitation)

    async def __call__(self, peer: NodeId, join: Join) -> Welcome | Refusal:
        """Answer whoever knows a secret, or have another node do so."""
        proof = join.proof or proof_of(join.secret, joining(peer))
        found = self._book.proved(proof, peer)
        if found is not None and found.given_to:
            return await self._send_on(found, peer, join, proof)
        if found is not None or join.inviter in (b"", self._print):
            return self._redeemed(join.request, proof, peer)
        return await self._introduce(peer, join)

    def take(self, peer: NodeId, message: AnyMessage) -> bool:
        """Take in what members say about newcomers; return whether it was that."""
        if isinstance(message, Introduction):
            if self.links is not None:
                self.links.send(peer, self._on_introduction(message))
            return True
        if isinstance(message, InvitationGiven):
            if self.links is not None:
                self.links.send(peer, self._on_given(peer, message))
            return True
        if not isinstance(message, Welcome | Refusal | InvitationTaken):
            return False
        waiting = self._waiting.get(message.request)
        if waiting is None or waiting.done():
            return not isinstance(message, Refusal)
        waiting.set_result(message)
        return True

    def porter(
        self, peer: NodeId, wanted: AdmissionWanted, address: str
    ) -> Welcome | Refusal | AdmissionHeard:
        """Answer somebody without an invitation, once somebody here has decided."""
        try:
            self._signer()
            answer = self.requests.hear(peer, address, wanted, time.monotonic())
            if self.open_lan and is_local(address) and isinstance(answer, Refusal):
                self.decide(peer, accepted=True)
                answer = self.requests.hear(peer, address, wanted, time.monotonic())
            if not isinstance(answer, Asked):
                self._tell_of(peer)
                return answer
            role = "worker" if self.open_lan else "member"
            grant = self._granted(peer, Terms(roles=ROLES[role], owner=OwnerId("")))
        except ShoalError as error:
            return Refusal(request=wanted.request, reason=str(error))
        return Welcome(request=wanted.request, grant=grant, peers=self.peers())

    @property
    def waiting(self) -> list[Asked]:
        """Those who ask to be let in, and for whom nobody has decided."""
        return self.requests.pending(time.monotonic())

    @property
    def may_let_in(self) -> bool:
        """Whether this node can sign grants."""
        try:
            self._signer()
        except ShoalError:
            return False
        return True

    @property
    def has_invited(self) -> bool:
        """Whether somebody may hold an invitation of this node."""
        return any(one.ends_at > time.time() for one in self._book)

    def decide(self, node: NodeId, *, accepted: bool) -> bool:
        """Let in who asked, or do not; return whether it still waits."""
        return self.requests.decide(node, time.monotonic(), accepted=accepted)

    def _tell_of(self, peer: NodeId) -> None:
        """Say once of each who asks that it does."""
        for one in self.waiting:
            if one.node == peer and one.code not in self._told:
                self._told = [*self._told, one.code][-REQUESTS_MAX:]
                has = f"  {one.has}" if one.has else ""
                self.say(
                    f'{petname(peer)} wants to join "{self._membership.shoal}"{has}'
                    f"  code {one.code}: `shoal accept`"
                )

    async def hand_over(self) -> None:
        """Give what newcomers still hold to an admin, who redeems it from now on.

        It is written down before it is said. If the admin did not hear of it, the
        next life of this node hears so from it, and takes the invitation back.
        """
        stand_in = next((n for n in self.linked() if self._is_admin(n)), None)
        if stand_in is None:
            return
        now = time.time()
        given = [
            one
            for one in self._book
            if one.left > 0 and one.ends_at > now and not one.given_to
        ]
        for one in given:
            one.given_to = stand_in
        if given:
            invited.save(self._home, self._book)
        messages = [_given(one, self._next_request(), now) for one in given]
        async with asyncio.TaskGroup() as group:
            for message in messages:
                group.create_task(self._ask(stand_in, message, HAND_OVER_S))

    async def _introduce(self, newcomer: NodeId, join: Join) -> Welcome | Refusal:
        """Ask who gave the invitation out, or, if that is away, who may have it now."""
        linked = self.linked()
        inviter = next((n for n in linked if key_print(n) == join.inviter), None)
        others = [n for n in linked if n != inviter and self._is_admin(n)]
        why = f"{self._named(join.inviter)} is not connected"
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
        if holder not in self.linked():
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
        request = self._next_request()
        introduction = Introduction(
            request=request, newcomer=newcomer, proof=proof, name=name
        )
        answer = await self._ask(peer, introduction, INTRODUCE_S)
        if isinstance(answer, Welcome | Refusal):
            return answer
        return _not_now(request, f"{petname(peer)} does not answer")

    async def _ask(
        self, peer: NodeId, message: Introduction | InvitationGiven, timeout_s: float
    ) -> Answer | None:
        """Return what a member answers; None if it does not."""
        if self.links is None or len(self._waiting) >= INTRODUCTIONS_MAX:
            return None
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[message.request] = answer
        try:
            self.links.send(peer, message)
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            return None
        finally:
            del self._waiting[message.request]

    def _on_introduction(self, message: Introduction) -> Welcome | Refusal:
        found = self._book.proved(message.proof, message.newcomer)
        if found is not None and found.given_to:
            name = petname(found.given_to)
            return _not_now(message.request, f"{name} has it now: ask there")
        return self._redeemed(message.request, message.proof, message.newcomer)

    def _redeemed(
        self, request: RequestId, proof: bytes, node: NodeId
    ) -> Welcome | Refusal:
        """Let a newcomer in who showed a proof; on disk first that it was."""
        found = self._book.redeem_by_proof(proof, node, time.time())
        if isinstance(found, str):
            return Refusal(request=request, reason=found)
        terms, digest = found
        try:
            grant = self._granted(node, terms)
            invited.save(self._home, self._book)
        except (ShoalError, OSError) as error:
            return Refusal(request=request, reason=str(error))
        shown = proof_by_hash(digest, welcoming(grant))
        return Welcome(request=request, grant=grant, peers=self.peers(), proof=shown)

    def _on_given(
        self, peer: NodeId, given: InvitationGiven
    ) -> InvitationTaken | Refusal:
        """Redeem what another admin gave out, within what that admin may give."""
        admission = self.admission(peer)
        try:
            self._signer()
            if admission is None or "admin" not in admission.roles:
                return Refusal(request=given.request, reason="not from an admin")
            now = time.time()
            self._book.take(_taken(given, admission, now), now)
            invited.save(self._home, self._book)
        except (ShoalError, OSError) as error:
            return Refusal(request=given.request, reason=str(error))
        return InvitationTaken(request=given.request)

    def _is_admin(self, node: NodeId) -> bool:
        admission = self.admission(node)
        return admission is not None and "admin" in admission.roles

    def _named(self, print_: bytes) -> str:
        """Return the name of a member by the print of its key, if it is known."""
        known = [*self.linked(), *(peer.node for peer in self.peers())]
        names = [petname(node) for node in known if key_print(node) == print_]
        return names[0] if names else "the node that gave this invitation out"

    def _next_request(self) -> RequestId:
        self._introductions += 1
        return RequestId(f"{self._identity.node}/introduction/{self._introductions}")

    def revocation(self, node: NodeId) -> Revocation:
        """Return the signed word that all grants of a node until now are void."""
        signer, delegation = self._signer()
        unsigned = Revocation(
            node=node,
            shoal=self._membership.shoal,
            serial=int(time.time()),
            signer=signer.node,
            delegation=delegation,
        )
        signature = signer.sign(revocation_payload(unsigned))
        return msgspec.structs.replace(unsigned, signature=signature)

    def _granted(self, peer: NodeId, terms: Terms) -> Grant:
        signer, delegation = self._signer()
        own = self._membership.grant
        gpus = cpu_milli = None  # The root has no limits, an admin those of its grant.
        if delegation is not None:
            gpus, cpu_milli = delegation.quota_gpus, delegation.quota_cpu_milli
        wall_s = time.time()
        grant = Grant(
            node=peer,
            shoal=self._membership.shoal,
            roles=terms.roles,
            owner=terms.owner or OwnerId(peer),
            top_priority=min(terms.top_priority, own.top_priority),
            quota_gpus=_least(terms.quota_gpus, gpus),
            quota_cpu_milli=_least(terms.quota_cpu_milli, cpu_milli),
            serial=int(wall_s),
            expires_wall_s=min(wall_s + terms.valid_for_s, own.expires_wall_s),
            delegation=delegation,
        )
        return issue(signer, grant)

    def _signer(self) -> tuple[Identity, Grant | None]:
        """Return whose signature this node can give: the root's, or an admin's."""
        try:
            root = Identity.load(self._home.root_key)
        except FileNotFoundError:
            root = None
        if root is not None and root.node == self._membership.root:
            return root, None
        if "admin" in self._membership.grant.roles:
            return self._identity, self._membership.grant
        raise NotAllowedError(
            "this node may neither invite nor revoke",
            because=f"its roles are {', '.join(self._membership.grant.roles)}",
            hint="ask on the node that made the shoal, or to be invited as admin",
        )


def _least(wanted: int | None, own: int | None) -> int | None:
    """Return the smaller quota: nobody gives more than it has."""
    return min((one for one in (wanted, own) if one is not None), default=None)


def _nobody(node: NodeId) -> Admission | None:
    """Know nobody: the network is not there yet."""


def _not_now(request: RequestId, reason: str) -> Refusal:
    """Return a no that may be a yes when somebody is back."""
    return Refusal(request=request, reason=reason, retry_in_s=RETRY_S)


def _given(one: Open, request: RequestId, now: float) -> InvitationGiven:
    return InvitationGiven(
        request=request,
        digest=one.digest,
        uses=one.left,
        ends_in_s=one.ends_at - now,
        **msgspec.structs.asdict(one.terms),
    )


def _taken(given: InvitationGiven, giver: Admission, now: float) -> Open:
    """Return an invitation that gives no more than whoever gave it out has."""
    terms = Terms(
        roles=tuple(role for role in giver.roles if role in given.roles),
        owner=given.owner,
        top_priority=min(given.top_priority, giver.top_priority),
        quota_gpus=_least(given.quota_gpus, giver.quota_gpus),
        quota_cpu_milli=_least(given.quota_cpu_milli, giver.quota_cpu_milli),
        valid_for_s=min(given.valid_for_s, giver.valid_for_s),
    )
    return Open(given.digest, terms, given.uses, now + given.ends_in_s, [])
