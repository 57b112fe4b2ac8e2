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

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from shoal.core.events import Effect
    from shoal.protocol.messages import Grant
    from shoal.runtime.node import Node


@final
class GrantRenewals:
    """Performs the machine's effects that renew grants."""

    def __init__(self, node: Node, shows: Sequence[Callable[[Grant], None]]) -> None:
        """Prepare to renew; each of `shows` presents a new grant from then on."""
        self._node = node
        self._shows = shows

    @property
    def performers(self) -> Mapping[type[Effect], Callable[..., None]]:
        """The performer of each effect."""
        return {SignGrant: self.sign, KeepGrant: self.keep}

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
        node.granting.keep(effect.grant)
        for show in self._shows:
            show(effect.grant)


def _renewed(grant: Grant) -> AuditEntry:
    return AuditEntry(
        what="renew",
        way="wire",
        node=grant.signer,
        target=grant.node,
        because=f"as {', '.join(grant.roles)}, serial {grant.serial}",
    )
