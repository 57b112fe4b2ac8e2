"""Lets others into the shoal: invitations given out here, and grants for who comes.

Who was invited by a node that cannot be dialled asks at a gate, which introduces it to
that node and passes the answer back.

Invitations live as long as the node: whoever was invited by an earlier life asks for a
new one.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.core.membership import revocation_payload
from shoal.errors import NotAllowedError, ShoalError
from shoal.model.ids import NodeId, OwnerId, RequestId
from shoal.net.identity import Identity
from shoal.net.invitations import (
    Book,
    Invitation,
    Terms,
    encode,
    key_print,
    new_secret,
    proof_by_hash,
    welcoming,
)
from shoal.protocol.messages import (
    Grant,
    Introduction,
    Refusal,
    Revocation,
    Welcome,
)
from shoal.runtime.membership import issue

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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


@final
class Reception:
    """The desk of a node: gives out invitations and answers those who bring one."""

    def __init__(self, home: Home, identity: Identity, membership: Membership) -> None:
        self._home = home
        self._identity = identity
        self._membership = membership
        self._book = Book()
        self.peers: Callable[[], tuple[PeerAddress, ...]] = tuple
        self.linked: Callable[[], Sequence[NodeId]] = tuple
        self.links: Links | None = None
        self._introductions = 0
        self._waiting: dict[RequestId, asyncio.Future[Welcome | Refusal]] = {}

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
        now = asyncio.get_running_loop().time()
        self._book.add(secret, terms, uses=uses, ttl_s=ttl_s, now=now)
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
        if join.inviter and join.inviter != key_print(self._identity.node):
            return await self._introduce(peer, join)
        now = asyncio.get_running_loop().time()
        terms = self._book.redeem(join.secret, peer, now)
        if isinstance(terms, str):
            return Refusal(request=join.request, reason=terms)
        try:
            grant = self._granted(peer, terms)
        except ShoalError as error:
            return Refusal(request=join.request, reason=str(error))
        return Welcome(request=join.request, grant=grant, peers=self.peers())

    def take(self, peer: NodeId, message: AnyMessage) -> bool:
        """Take in what members say about newcomers; return whether it was that."""
        if isinstance(message, Introduction):
            if self.links is not None:
                self.links.send(peer, self._on_introduction(message))
            return True
        if not isinstance(message, Welcome | Refusal):
            return False
        waiting = self._waiting.get(message.request)
        if waiting is None or waiting.done():
            return isinstance(message, Welcome)
        waiting.set_result(message)
        return True

    async def _introduce(self, newcomer: NodeId, join: Join) -> Welcome | Refusal:
        """Ask the node that gave the invitation out; it must be linked to us."""
        inviter = next((n for n in self.linked() if key_print(n) == join.inviter), None)
        if inviter is None or self.links is None:
            reason = "the node that gave this invitation out is not connected here now"
            return Refusal(request=join.request, reason=reason)
        if len(self._waiting) >= INTRODUCTIONS_MAX:
            reason = f"{INTRODUCTIONS_MAX} others are being introduced"
            return Refusal(request=join.request, reason=reason)
        self._introductions += 1
        own = RequestId(f"{self._identity.node}/introduction/{self._introductions}")
        answer: asyncio.Future[Welcome | Refusal]
        answer = asyncio.get_running_loop().create_future()
        self._waiting[own] = answer
        try:
            introduction = Introduction(
                request=own, newcomer=newcomer, proof=join.proof, name=join.name
            )
            self.links.send(inviter, introduction)
            async with asyncio.timeout(INTRODUCE_S):
                said = await answer
        except TimeoutError:
            reason = f"the node that gave it out did not answer in {INTRODUCE_S:g} s"
            return Refusal(request=join.request, reason=reason)
        finally:
            del self._waiting[own]
        return msgspec.structs.replace(said, request=join.request)

    def _on_introduction(self, message: Introduction) -> Welcome | Refusal:
        now = asyncio.get_running_loop().time()
        node = message.newcomer
        found = self._book.redeem_by_proof(message.proof, node, now)
        if isinstance(found, str):
            return Refusal(request=message.request, reason=found)
        terms, digest = found
        try:
            grant = self._granted(node, terms)
        except ShoalError as error:
            return Refusal(request=message.request, reason=str(error))
        proof = proof_by_hash(digest, welcoming(grant))
        return Welcome(
            request=message.request, grant=grant, peers=self.peers(), proof=proof
        )

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
