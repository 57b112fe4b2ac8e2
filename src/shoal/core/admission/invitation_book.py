"""The invitations that a node redeems.

Time is passed in, and all that the book knows of a secret is its hash. A revoked node
is let in only by an invitation that was made after the revocation: each invitation
keeps which revocations were known when it was made.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.model.ids import NodeId, OwnerId
from shoal.protocol.admission_proofs import joining, proof_by_digest
from shoal.protocol.limits import USES_MAX
from shoal.protocol.messages import Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

INVITATIONS_MAX: Final = 256
TTL_MAX_S: Final = 30 * 86_400.0
PARDONS_MAX: Final = 256
ASK_AGAIN_S: Final = 600.0
"""How long after an invitation's end those who joined with it are answered again."""

UNKNOWN: Final = "no such invitation"


class InvitationTerms(msgspec.Struct, frozen=True, kw_only=True):
    """Rights that an invitation grants."""

    roles: tuple[Role, ...]
    owner: OwnerId
    top_priority: int = 0
    quota_gpus: int | None = None
    quota_cpu_milli: int | None = None
    valid_for_s: float = 365 * 86_400.0


class OpenInvitation(msgspec.Struct):
    """One open invitation; forgotten some time after it expires."""

    digest: bytes
    terms: InvitationTerms
    uses: int
    ends_at: float
    joined: list[NodeId]  # At most `uses`.
    given_to: NodeId = NodeId("")  # who redeems it instead of us
    pardons: dict[NodeId, int] = {}  # up to which serial a node was revoked before
    moves: int = 0  # how often it was given away

    @property
    def left(self) -> int:
        """How many machines may still join with it."""
        return self.uses - len(self.joined)

    def give_to(self, node: NodeId) -> None:
        """Leave it to another node to redeem this invitation."""
        self.given_to = node
        self.moves += 1

    def comes_back(self, given: OpenInvitation) -> bool:
        """Whether it is given to us again, after we gave it away."""
        return bool(self.given_to) and given.moves > self.moves


@final
class InvitationBook:
    """The invitations that a node redeems: a bounded number, each with a use limit."""

    def __init__(self, kept: Iterable[OpenInvitation] = ()) -> None:
        """Start with the invitations saved before a restart."""
        self._open = list(kept)

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[OpenInvitation]:
        return iter(self._open)

    def snapshot(self) -> tuple[OpenInvitation, ...]:
        """Return a copy of all invitations, to be written down."""
        copied = msgspec.structs.replace
        return tuple(copied(one, joined=list(one.joined)) for one in self._open)

    def take(self, invitation: OpenInvitation, now: float) -> str:
        """Add an invitation, unless it is here already; return why not, if so.

        One that was given away and comes back is redeemed here again.
        """
        if flaw := range_flaw(invitation.uses, invitation.ends_at - now):
            return flaw
        known = next((o for o in self._open if o.digest == invitation.digest), None)
        if known is not None:
            if known.comes_back(invitation):
                known.given_to, known.moves = NodeId(""), invitation.moves
                known.joined = invitation.joined
            return ""
        if len(self._open) >= INVITATIONS_MAX:
            self._open = [one for one in self._open if one.ends_at > now]
        if len(self._open) >= INVITATIONS_MAX:
            return f"no room for another invitation: {INVITATIONS_MAX} are open"
        self._open.append(invitation)
        return ""

    def drop(self, digest: bytes) -> bool:
        """Forget an invitation; return whether it was here."""
        before = len(self._open)
        self._open = [one for one in self._open if one.digest != digest]
        return len(self._open) < before

    def redeem(
        self, found: OpenInvitation, node: NodeId, now: float, revoked_up_to: int
    ) -> str:
        """Note that `node` joins by this invitation; return why it may not, if so.

        A node that asks again, because the answer was lost, gets the same answer
        without using up the invitation, also a while after its end.
        """
        again_s = ASK_AGAIN_S if node in found.joined else 0.0
        if now >= found.ends_at + again_s:
            return f"the invitation expired {now - found.ends_at:.0f} s ago"
        if revoked_up_to > found.pardons.get(node, -1):
            return "it was revoked: only a newer invitation lets it in again"
        if node not in found.joined:
            if len(found.joined) >= found.uses:
                return f"the invitation is used up: {found.uses} of {found.uses}"
            found.joined.append(node)
        return ""

    def proved(self, proof: bytes, node: NodeId) -> OpenInvitation | None:
        """Return the invitation whose secret this node has proved to know.

        All are looked at, each in constant time: how long it takes tells nothing.
        """
        found = None
        for one in self._open:
            if hmac.compare_digest(proof_by_digest(one.digest, joining(node)), proof):
                found = one
        return found


def pardons(revoked: Mapping[NodeId, int]) -> dict[NodeId, int]:
    """Return what a new invitation forgives, within bounds: the latest revocations."""
    return dict(list(revoked.items())[-PARDONS_MAX:])


def range_flaw(uses: int, ttl_s: float) -> str:
    """Say what is wrong with the uses or the life of an invitation, if anything."""
    for what, value, most in (("uses", uses, USES_MAX), ("seconds", ttl_s, TTL_MAX_S)):
        if not 0 < value <= most:
            return (
                f"an invitation cannot be for {value:g} {what}: "
                f"more than 0 and at most {most:,.0f} are possible"
            )
    return ""
