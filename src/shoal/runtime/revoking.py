"""Turns a node out of the shoal, and makes sure that it is out."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from shoal.core.events import MessageReceived
from shoal.errors import ShoalError
from shoal.net.petname import petname

if TYPE_CHECKING:
    from shoal.core.roster import Roster
    from shoal.model.ids import NodeId
    from shoal.protocol.messages import Revocation
    from shoal.runtime.granting import Granting
    from shoal.runtime.node import Node

REVOKED_S: Final = 10.0
"""How long the disk may take to keep a revocation."""


async def revoke(node: Node, granting: Granting, member: NodeId) -> None:
    """Void the grants of a member here, and tell all others.

    Raises `ShoalError` if the member is not out when this is done.
    """
    revocation = granting.revocation(member)
    node.feed(MessageReceived(node.id, revocation))
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(REVOKED_S):
            await node.news.wait()  # It is on disk then.
    check(node.roster, revocation, asyncio.get_running_loop().time())


def check(roster: Roster, revocation: Revocation, now: float) -> None:
    """Raise `ShoalError` if a revocation that was fed to the node has no effect."""
    member = revocation.node
    if roster.revoked_up_to(member) < revocation.serial:
        raise ShoalError(
            f"{petname(member)} is not revoked",
            because="this node did not take the revocation: it may revoke nobody any "
            "more, or keeps as many revocations as it can",
            hint="revoke it on the node that made the shoal",
        )
    if roster.get(member, now) is not None:
        raise ShoalError(
            f"{petname(member)} is not revoked",
            because="it shows a grant with a serial above that of the revocation",
            hint="revoke it again; if that does not help, revoke who signed its grant",
        )
