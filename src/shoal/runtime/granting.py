"""Signs grants and revocations, as far as this node may.

The node that made the shoal has the root's key and no limits. An admin signs with its
own key and delegates what its own grant holds, no more. Serials follow from what this
node has seen and from no clock alone: see `core.membership`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.core.membership import (
    revocation_payload,
    serial_for_grant,
    serial_for_revocation,
)
from shoal.core.renewing import renewed
from shoal.errors import KeyLockedError, NotAllowedError, ShoalError
from shoal.model.bounds import AMOUNT_MAX
from shoal.model.ids import OwnerId
from shoal.net.identity import Identity
from shoal.protocol.messages import Grant, Revocation
from shoal.runtime.membership import issue

if TYPE_CHECKING:
    from shoal.core.roster import Roster
    from shoal.model.ids import NodeId
    from shoal.net.invitations import Terms
    from shoal.protocol.messages import Role
    from shoal.runtime.home import Home
    from shoal.runtime.membership import Membership

ROLES: Final[dict[str, tuple[Role, ...]]] = {
    "member": ("scheduler", "worker", "gate"),
    "worker": ("worker",),
    "submit": ("scheduler",),
    "admin": ("scheduler", "worker", "gate", "admin"),
}
"""What an invitation may be for, in the words of the command line."""


@final
class Granting:
    """The pen of a node: whatever it signs about members is signed here."""

    def __init__(
        self, home: Home, identity: Identity, membership: Membership, roster: Roster
    ) -> None:
        self._home = home
        self._roster = roster
        self._identity = identity
        self._membership = membership

    @property
    def is_allowed(self) -> bool:
        """Whether this node may sign at all."""
        try:
            self.check()
        except ShoalError:
            return False
        return True

    def check(self) -> None:
        """Raise `ShoalError` if this node can sign nothing."""
        self._signer()

    def grant(self, peer: NodeId, terms: Terms) -> Grant:
        """Return a signed grant, which gives no more than this node has itself."""
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
            quota_gpus=least(terms.quota_gpus, gpus),
            quota_cpu_milli=least(terms.quota_cpu_milli, cpu_milli),
            serial=self._new_serial(peer, wall_s),
            expires_wall_s=min(wall_s + terms.valid_for_s, own.expires_wall_s),
            delegation=delegation,
        )
        return issue(signer, grant)

    def keep(self, grant: Grant) -> None:
        """Sign by this grant from now on: the old one ends."""
        self._membership = msgspec.structs.replace(self._membership, grant=grant)

    def renewed(self, peer: NodeId, old: Grant) -> Grant:
        """Return a grant with the rights of an old one, for as long again."""
        signer, delegation = self._signer()
        made = renewed(
            old,
            self._membership.grant,
            is_root=delegation is None,
            revoked_up_to=self._roster.revoked_up_to(peer),
            wall_s=time.time(),
        )
        if isinstance(made, str):
            raise NotAllowedError("no new grant", because=made)
        return issue(signer, made)

    def revocation(self, node: NodeId) -> Revocation:
        """Return the signed word that all grants of a node until now are void.

        They are void whatever the clocks of their signers read: of all that this node
        has seen of that node, and of all others of the same term.
        """
        signer, delegation = self._signer()
        unsigned = Revocation(
            node=node,
            shoal=self._membership.shoal,
            serial=serial_for_revocation(self._roster.highest_serial(node)),
            signer=signer.node,
            delegation=delegation,
        )
        signature = signer.sign(revocation_payload(unsigned))
        return msgspec.structs.replace(unsigned, signature=signature)

    def _new_serial(self, peer: NodeId, wall_s: float) -> int:
        serial = serial_for_grant(self._roster.revoked_up_to(peer), wall_s)
        if serial > AMOUNT_MAX:
            raise NotAllowedError(
                f"{peer} can never be let in again",
                because="every serial that its grants could have is revoked",
                hint="let it join with a new home, or revoke the admin who did that",
            )
        return serial

    def _signer(self) -> tuple[Identity, Grant | None]:
        """Return whose signature this node can give: the root's, or an admin's."""
        try:
            root = Identity.load(self._home.root_key)
        except (FileNotFoundError, KeyLockedError):
            root = None  # An admin signs by its own grant.
        if root is not None and root.node == self._membership.root:
            return root, None
        if "admin" in self._membership.grant.roles:
            return self._identity, self._membership.grant
        raise NotAllowedError(
            "this node may neither invite nor revoke",
            because=f"its roles are {', '.join(self._membership.grant.roles)}",
            hint="ask on the node that made the shoal, or to be invited as admin",
        )


def least(wanted: int | None, own: int | None) -> int | None:
    """Return the smaller quota: nobody gives more than it has."""
    return min((one for one in (wanted, own) if one is not None), default=None)
