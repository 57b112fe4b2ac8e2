"""Revoke a member of the shoal, and check that it took effect."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from shoal.core.events import MessageReceived
from shoal.errors import ShoalError
from shoal.net.identity.petname import petname

if TYPE_CHECKING:
    from shoal.core.membership.roster import Roster
    from shoal.model.ids import NodeId
    from shoal.protocol.messages import Revocation
    from shoal.runtime.membership.grant_signing import GrantSigner
    from shoal.runtime.node import Node

REVOKED_S: Final = 10.0
"""Longest wait until a revocation is on disk."""


async def revoke(node: Node, granting: GrantSigner, member: NodeId) -> None:
    """Revoke a member's grants here, and tell all other members.

    Raises `ShoalError` if the revocation has no effect.
    """
    revocation = granting.revocation(member)
    node.feed(MessageReceived(node.id, revocation))
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(REVOKED_S):
            await node.news.wait()  # It is on disk now.
    check(node.roster, revocation, asyncio.get_running_loop().time())


def check(roster: Roster, revocation: Revocation, now: float) -> None:
    """Raise `ShoalError` if a revocation fed to the node had no effect."""
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
