"""Signs grants for the machine, and has the whole node show its new one.

The machine decides who gets what; the keys are here. A new grant is on disk before
anybody sees it, and links that are up stay as they are.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, final

import msgspec

from shoal.core.auditing import Entry
from shoal.core.events import GrantSigned
from shoal.errors import ShoalError
from shoal.runtime import membership

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.core.events import KeepGrant, SignGrant
    from shoal.model.ids import NodeId
    from shoal.protocol.messages import Grant
    from shoal.runtime.node import Node

    Sign = Callable[[NodeId, Grant], Grant]
    """Signs a grant with the rights of an old one; or raises `ShoalError`."""


@final
class Renewals:
    """The hand of a node that its machine renews grants by."""

    def __init__(self, node: Node) -> None:
        self.sign_by: Sign | None = None  # There is none before the desk is open.
        self.trouble = ""  # Why a new grant could not be written.
        self._node = node
        self._showing: list[Callable[[Grant], None]] = []

    def on_kept(self, show: Callable[[Grant], None]) -> None:
        """Have this called with each new grant, which it is to show from then on."""
        self._showing.append(show)

    def sign(self, effect: SignGrant) -> None:
        """Sign, and tell the machine what came of it."""
        grant, reason = None, "this node signs nothing yet"
        try:
            if self.sign_by is not None:
                grant, reason = self.sign_by(effect.peer, effect.grant), ""
        except (ShoalError, OSError) as error:
            reason = str(error)
        else:
            if grant is not None:
                self._node.audit.note(_renewed(grant))
        signed = GrantSigned(effect.peer, effect.request, grant, reason)
        asyncio.get_running_loop().call_soon(self._node.feed, signed)

    def keep(self, effect: KeepGrant) -> None:
        """Write the new grant of this node down, and show it everywhere."""
        node = self._node
        node.membership = msgspec.structs.replace(node.membership, grant=effect.grant)
        try:
            membership.save(node.home, node.membership)
            self.trouble = ""
        except OSError as error:  # It holds, but not in the next life.
            self.trouble = error.strerror or str(error)
        for show in self._showing:
            show(effect.grant)


def _renewed(grant: Grant) -> Entry:
    return Entry(
        what="renew",
        way="wire",
        node=grant.signer,
        target=grant.node,
        because=f"as {', '.join(grant.roles)}, serial {grant.serial}",
    )
