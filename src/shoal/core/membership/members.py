"""Who may do what in a shoal: grants, delegated grants, and revocations.

A grant binds a node to roles and limits and is signed by the shoal's root, or by an
admin that shows its own grant. An admin never gives more than it has: every role,
the priority, the quota and the expiry of a grant are within those of its signer. An
admin may name any owner.

A revocation outlives the grant of its signer, or the revoked would return when that
expires. If the root revokes an admin, all that the admin signed is void, revocations
too: sign again those that shall stand. So a stolen admin's key can be undone, and
nodes agree in whatever order the revocations reached them.

Serials are counted in terms, because the clocks of signers do not agree. Within a term
the serial of a grant is what the clock of its signer read. A revocation ends the term
of the latest grant that its signer has seen of the node, whatever any clock says; to
let the node in again, a signer begins the next term.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, final

import msgspec

from shoal.model.ids import NodeId, OwnerId
from shoal.model.job import PRIORITY_MIN
from shoal.protocol.limits import DELEGATIONS_MAX
from shoal.protocol.messages import Grant, Revocation, Role

MEMBERS_MAX: Final = 16_384
"""Verified grants remembered; beyond that the one admitted first is verified anew."""

REVOCATIONS_MAX: Final = 4_096
"""Revocations kept. No other is accepted beyond that: to forget one would readmit."""

REVOCATIONS_BY_ADMINS_MAX: Final = REVOCATIONS_MAX // 2
"""Of those, signed by admins: an admin cannot use up the room that the root needs."""

TERM: Final = 1 << 37
"""Serials in one term: more than any clock reads in seconds that a message may hold."""

Verifier = Callable[[NodeId, bytes, bytes], bool]
"""Says whether this signer made, of this payload, this signature. Never raises."""


class Admission(msgspec.Struct, frozen=True, kw_only=True):
    """What a member may do, and for how long from now."""

    node: NodeId
    owner: OwnerId
    roles: tuple[Role, ...]
    top_priority: int
    quota_gpus: int | None  # None means no limit
    quota_cpu_milli: int | None
    valid_for_s: float

    def clamp(self, priority: int) -> int:
        """Return `priority`, or the best one that this member may use."""
        return max(PRIORITY_MIN, min(priority, self.top_priority))


def grant_payload(grant: Grant) -> bytes:
    """Return the bytes that the signer of `grant` signs: all but the signature.

    They depend on the value alone, not on how a peer encoded it. A later field goes
    last and only where it differs from its default, or old signatures break.
    """
    return _pack(
        "shoal-grant-v1",
        grant.node,
        grant.shoal,
        grant.roles,
        grant.owner,
        grant.top_priority,
        grant.quota_gpus,
        grant.quota_cpu_milli,
        grant.serial,
        float(grant.expires_wall_s),
        grant.signer,
        _signed(grant.delegation),
    )


def revocation_payload(revocation: Revocation) -> bytes:
    """Return the bytes that the signer of `revocation` signs; as with a grant."""
    return _pack(
        "shoal-revocation-v1",
        revocation.node,
        revocation.shoal,
        revocation.serial,
        revocation.signer,
        _signed(revocation.delegation),
    )


def serial_for_grant(revoked_up_to: int, wall_s: float) -> int:
    """Return the serial of a new grant of a node whose serials up to this are void.

    It may be above `AMOUNT_MAX`: then the node can never be let in again.
    """
    least = revoked_up_to + 1
    clock = max(0, min(int(wall_s), TERM - 1))
    return max(least, least // TERM * TERM + clock)


def serial_for_revocation(highest: int) -> int:
    """Return the serial that voids all grants of the term of the highest one seen."""
    return (max(0, highest) // TERM + 1) * TERM - 1


@final
class Members:
    """Remembers which grants were verified, and whose are void."""

    def __init__(self, shoal: str, root: NodeId, verifier: Verifier) -> None:
        self._shoal = shoal
        self._root = root
        self._verify = verifier
        # By node, the grant it was last admitted with; at most MEMBERS_MAX. Only
        # those admitted are kept, so that strangers cannot push members out.
        self._admitted: dict[NodeId, Grant] = {}
        # By node and by the grant of the signer, which is None for the root; the
        # highest serial of each. None is ever here that does not stand.
        self._revocations: dict[NodeId, dict[Grant | None, Revocation]] = {}

    @property
    def revocations(self) -> tuple[Revocation, ...]:
        """All valid revocations, newest last, for a node that joins."""
        return tuple(
            revocation
            for signed in self._revocations.values()
            for revocation in signed.values()
        )

    def admit(
        self, peer: NodeId, grant: Grant | None, wall_s: float
    ) -> Admission | str:
        """Return what `grant` lets `peer` do at this time of day, or why nothing.

        The link has proved that the peer is `peer`. Signatures are verified the first
        time only; while the peer shows the same grant, this is a look-up.
        """
        if grant is None:
            return "no grant"
        if reason := _expired(grant, wall_s):
            return reason
        if self._admitted.get(peer) != grant:
            if reason := self._refusal(peer, grant):
                return reason
            self._remember(peer, grant)
        return _admission(grant, wall_s)

    def revoke(self, revocation: Revocation) -> bool:
        """Void grants, from now on; return whether that is news worth passing on.

        False also for a revocation that is forged, foreign, of the root itself,
        signed by someone whom the root revoked, or that finds no room.
        """
        if not self._is_news(revocation) or not self._is_signed(revocation):
            return False
        by_node = self._revocations.pop(revocation.node, {})
        by_node[revocation.delegation] = revocation
        self._revocations[revocation.node] = by_node  # The newest is the last.
        if revocation.delegation is None:
            self._drop_those_by_void_admins()
        self._admitted = {
            peer: grant
            for peer, grant in self._admitted.items()
            if self._void(grant) is None
        }
        return True

    def revoked_up_to(self, node: NodeId) -> int:
        """Return the highest serial of a node that is void, or -1."""
        signed = self._revocations.get(node, {})
        return max((revocation.serial for revocation in signed.values()), default=-1)

    def _refusal(self, peer: NodeId, grant: Grant) -> str | None:
        if grant.node != peer:
            return f"grant is for {grant.node}, not {peer}"
        return self._void(grant) or self._flaw(grant)

    def _void(self, grant: Grant) -> str | None:
        for link in _lineage(grant):
            up_to = self.revoked_up_to(link.node)
            if link.serial <= up_to:
                return f"{link.node} is revoked up to serial {up_to}"
        return None

    def _void_by_root(self, grant: Grant) -> bool:
        for link in _lineage(grant):
            revocation = self._revocations.get(link.node, {}).get(None)
            if revocation is not None and link.serial <= revocation.serial:
                return True
        return False

    def _flaw(self, grant: Grant) -> str | None:
        """Say what is wrong with `grant` at any time; the costly checks come last."""
        lineage = _lineage(grant)
        if len(lineage) > DELEGATIONS_MAX + 1:
            return f"delegation deeper than {DELEGATIONS_MAX}"
        for link in lineage:
            if link.shoal != self._shoal:
                return f"another shoal: {link.shoal}, not {self._shoal}"
            if reason := self._overreach(link):
                return reason
        for link in lineage:
            if not self._verify(link.signer, grant_payload(link), link.signature):
                return f"signature of {link.signer} does not verify"
        return None

    def _overreach(self, grant: Grant) -> str | None:
        if reason := self._lacks_authority(grant.signer, grant.delegation):
            return reason
        return _widening(grant, grant.delegation) if grant.delegation else None

    def _lacks_authority(self, signer: NodeId, own: Grant | None) -> str | None:
        if own is None:
            if signer == self._root:
                return None
            return f"signed by a non-admin: {signer or 'nobody'} shows no grant"
        if own.node != signer:
            return f"signed by a non-admin: {signer} shows the grant of {own.node}"
        if "admin" not in own.roles:
            return f"signed by a non-admin: {signer} is {_listed(own.roles)}"
        return None

    def _is_news(self, revocation: Revocation) -> bool:
        by_node = self._revocations.get(revocation.node, {})
        known = by_node.get(revocation.delegation)
        if known is not None:
            return revocation.serial > known.serial
        kept = self.revocations
        if len(kept) >= REVOCATIONS_MAX:
            return False
        by_admins = sum(one.delegation is not None for one in kept)
        return revocation.delegation is None or by_admins < REVOCATIONS_BY_ADMINS_MAX

    def _is_signed(self, revocation: Revocation) -> bool:
        own = revocation.delegation
        if revocation.shoal != self._shoal or revocation.node == self._root:
            return False
        if self._lacks_authority(revocation.signer, own):
            return False
        if own is not None and (self._void_by_root(own) or self._flaw(own)):
            return False
        payload = revocation_payload(revocation)
        return self._verify(revocation.signer, payload, revocation.signature)

    def _drop_those_by_void_admins(self) -> None:
        standing: dict[NodeId, dict[Grant | None, Revocation]] = {}
        for node, signed in self._revocations.items():
            for own, revocation in signed.items():
                if own is None or not self._void_by_root(own):
                    standing.setdefault(node, {})[own] = revocation
        self._revocations = standing

    def _remember(self, peer: NodeId, grant: Grant) -> None:
        self._admitted.pop(peer, None)
        if len(self._admitted) >= MEMBERS_MAX:
            del self._admitted[next(iter(self._admitted))]
        self._admitted[peer] = grant


def highest_serial(node: NodeId, grants: Iterable[Grant]) -> int:
    """Return the highest serial of a node in these grants and their signers', or -1."""
    return max(
        (
            link.serial
            for grant in grants
            for link in _lineage(grant)
            if link.node == node
        ),
        default=-1,
    )


def _lineage(grant: Grant) -> list[Grant]:
    """List `grant` and its signers' grants; at most one more than is allowed."""
    lineage = [grant]
    while len(lineage) <= DELEGATIONS_MAX + 1 and (above := lineage[-1].delegation):
        lineage.append(above)
    return lineage


def _widening(grant: Grant, above: Grant) -> str | None:
    """Say what `grant` gives that its signer does not have."""
    who = f"delegate {above.node}"
    for role in grant.roles:
        if role not in above.roles:
            return f"{who} gives role {role}, has {_listed(above.roles)}"
    if grant.top_priority > above.top_priority:
        return f"{who} gives priority {grant.top_priority}, has {above.top_priority}"
    if _exceeds(grant.quota_gpus, above.quota_gpus):
        return f"{who} gives {_quota(grant.quota_gpus)} gpus, has {above.quota_gpus}"
    if _exceeds(grant.quota_cpu_milli, above.quota_cpu_milli):
        given, has = _quota(grant.quota_cpu_milli), above.quota_cpu_milli
        return f"{who} gives {given} thousandths of a cpu, has {has}"
    if not grant.expires_wall_s <= above.expires_wall_s:
        longer_s = grant.expires_wall_s - above.expires_wall_s
        return f"{who} gives {longer_s:.0f} s more than it has"
    return None


def _exceeds(given: int | None, own: int | None) -> bool:
    return own is not None and (given is None or given > own)


def _quota(quota: int | None) -> str:
    return "unlimited" if quota is None else str(quota)


def _listed(roles: tuple[Role, ...]) -> str:
    return ", ".join(roles) or "nothing"


def _expired(grant: Grant, wall_s: float) -> str | None:
    if wall_s < grant.expires_wall_s:
        return None
    return f"grant expired {wall_s - grant.expires_wall_s:.0f} s ago"


def _admission(grant: Grant, wall_s: float) -> Admission:
    return Admission(
        node=grant.node,
        owner=grant.owner,
        roles=grant.roles,
        top_priority=grant.top_priority,
        quota_gpus=grant.quota_gpus,
        quota_cpu_milli=grant.quota_cpu_milli,
        valid_for_s=grant.expires_wall_s - wall_s,
    )


def _signed(grant: Grant | None) -> tuple[bytes, bytes] | None:
    return None if grant is None else (grant_payload(grant), grant.signature)


def _pack(*fields: object) -> bytes:
    return msgspec.msgpack.encode(fields)
