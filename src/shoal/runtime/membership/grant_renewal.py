"""Sign renewed grants for the machine, and switch the node to its own new grant.

The machine decides which grants to renew; this module has the keys. A new grant is
written to disk before peers see it. Open links are not affected.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, final

import msgspec

from shoal.core.durability.audit_chain import AuditEntry
from shoal.core.events import GrantSigned, KeepGrant, SignGrant
from shoal.errors import ShoalError
from shoal.runtime.membership import shoal_membership

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shoal.core.events import Effect
    from shoal.protocol.messages import Grant
    from shoal.runtime.node import Node


@final
class GrantRenewals:
    """Performs the machine's effects that renew grants."""

    def __init__(self, node: Node) -> None:
        self.trouble = ""  # why a new grant could not be written
        self._node = node
        self._showing: list[Callable[[Grant], None]] = []

    @property
    def performers(self) -> Mapping[type[Effect], Callable[..., None]]:
        """The performer of each effect."""
        return {SignGrant: self.sign, KeepGrant: self.keep}

    def on_kept(self, show: Callable[[Grant], None]) -> None:
        """Call `show` with each new grant, to present from then on."""
        self._showing.append(show)

    def sign(self, effect: SignGrant) -> None:
        """Sign a renewed grant; feed the grant or the reason for refusal."""
        grant, reason = None, ""
        try:
            grant = self._node.granting.renewed(effect.peer, effect.grant)
            self._node.audit.note(_renewed(grant))
        except (ShoalError, OSError) as error:
            reason = str(error)
        signed = GrantSigned(effect.peer, effect.request, grant, reason)
        asyncio.get_running_loop().call_soon(self._node.feed, signed)

    def keep(self, effect: KeepGrant) -> None:
        """Save this node's new grant, and present it from now on."""
        node = self._node
        node.membership = msgspec.structs.replace(node.membership, grant=effect.grant)
        try:
            shoal_membership.save(node.home, node.membership)
            self.trouble = ""
        except OSError as error:  # Valid until the next restart.
            self.trouble = error.strerror or str(error)
        node.granting.keep(effect.grant)
        for show in self._showing:
            show(effect.grant)


def _renewed(grant: Grant) -> AuditEntry:
    return AuditEntry(
        what="renew",
        way="wire",
        node=grant.signer,
        target=grant.node,
        because=f"as {', '.join(grant.roles)}, serial {grant.serial}",
    )
