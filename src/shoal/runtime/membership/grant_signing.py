"""Sign grants and revocations, within this node's rights.

The node that founded the shoal has the root key and no limits. An admin signs with its
own key and can delegate at most what its own grant holds. Serials depend on what this
node has seen, not only on a clock: see `core.membership.members`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.core.admission.admission_control import MEMBER, WORKER, least
from shoal.core.membership.grant_renewal import renewed
from shoal.core.membership.members import (
    revocation_payload,
    serial_for_grant,
    serial_for_revocation,
)
from shoal.errors import KeyLockedError, NotAllowedError, ShoalError
from shoal.model.ids import OwnerId
from shoal.model.text.bounds import AMOUNT_MAX
from shoal.net.identity.identity import Identity
from shoal.protocol.messages import Grant, Revocation
from shoal.runtime.membership.shoal_membership import issue, save

if TYPE_CHECKING:
    from shoal.core.admission.invitation_book import InvitationTerms
    from shoal.core.membership.roster import Roster
    from shoal.model.ids import NodeId
    from shoal.protocol.messages import Role
    from shoal.runtime.home import Home
    from shoal.runtime.membership.shoal_membership import ShoalMembership

ROLES: Final[dict[str, tuple[Role, ...]]] = {
    "member": MEMBER,
    "worker": WORKER,
    "submit": ("scheduler",),
    "admin": ("scheduler", "worker", "gate", "admin"),
}
"""Roles granted by each kind of invitation, as named on the command line."""


@final
class GrantSigner:
    """Signs everything a node signs about members."""

    def __init__(
        self,
        home: Home,
        identity: Identity,
        membership: ShoalMembership,
        roster: Roster,
    ) -> None:
        self.trouble = ""  # why this node's own new grant could not be written
        self._home = home
        self._roster = roster
        self._identity = identity
        self._membership = membership

    @property
    def is_allowed(self) -> bool:
        """Whether this node may sign grants and revocations."""
        try:
            self.check()
        except ShoalError:
            return False
        return True

    def check(self) -> None:
        """Raise `ShoalError` if this node may not sign."""
        self._signer()

    def grant(self, peer: NodeId, terms: InvitationTerms) -> Grant:
        """Return a signed grant, limited to this node's own rights."""
        signer, delegation = self._signer()
        own = self._membership.grant
        gpus = cpu_milli = None  # The root has no limits; an admin has its grant's.
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
        """Save this node's new grant, and sign by it from now on."""
        self._membership = msgspec.structs.replace(self._membership, grant=grant)
        try:
            save(self._home, self._membership)
            self.trouble = ""
        except OSError as error:  # Valid until the next restart.
            self.trouble = error.strerror or str(error)

    def renewed(self, peer: NodeId, old: Grant) -> Grant:
        """Return a grant with the same rights and duration as an old one."""
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
        """Return a signed revocation of all of a node's grants so far.

        It covers every grant of that node seen here, and all others of the same term,
        whatever their signers' clocks read.
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
        """Return the key to sign with, and an admin's own grant as delegation."""
        try:
            root = Identity.load(self._home.root_key)
        except (FileNotFoundError, KeyLockedError):
            root = None  # An admin signs with its own key.
        if root is not None and root.node == self._membership.root:
            return root, None
        if "admin" in self._membership.grant.roles:
            return self._identity, self._membership.grant
        raise NotAllowedError(
            "this node may neither invite nor revoke",
            because=f"its roles are {', '.join(self._membership.grant.roles)}",
            hint="ask on the node that made the shoal, or to be invited as admin",
        )
