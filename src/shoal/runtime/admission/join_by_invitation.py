"""Join an existing shoal with an invitation."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from shoal.errors import ShoalError, UnreachableError
from shoal.net.identity.identity import Identity
from shoal.net.identity.petname import petname
from shoal.net.joining.join import invitation_of, join
from shoal.runtime.membership import shoal_membership
from shoal.runtime.membership.shoal_membership import ShoalMembership

if TYPE_CHECKING:
    from shoal.model.ids import NodeId
    from shoal.net.joining.invitations import Invitation
    from shoal.net.joining.join import Joined
    from shoal.protocol.messages import Grant, Welcome
    from shoal.runtime.home import Home

AGAIN_S: Final = 2.0
"""Between two attempts to be let in, while nobody is there who could."""

Waits = Callable[[str, float], None]
"""Takes why nobody lets this machine in, and for how many seconds it has waited."""


async def join_shoal(
    home: Home, text: str, *, wait_s: float = 0.0, waits: Waits | None = None
) -> tuple[ShoalMembership, NodeId]:
    """Join a shoal and save the membership; return it and the inviter.

    If no inviting node can be reached, retry for `wait_s`; `waits` is told why, before
    each time.
    """
    invitation = invitation_of(text)
    home.prepare()
    identity = Identity.load_or_create(home.key)
    joined = await _joined(identity, invitation, wait_s, waits)
    here = [_with_node(address, joined.inviter) for address in invitation.addresses]
    belongs = belonging(joined.welcome, invitation.shoal, identity, here)
    grant = belongs.grant
    admission = belongs.members().admit(identity.node, grant, time.time())
    if isinstance(admission, str):
        raise ShoalError(
            f"could not join '{invitation.shoal}'",
            because=f"its grant does not hold: {admission}",
            hint="compare the clocks of both machines, and ask for a new invitation",
        )
    shoal_membership.save(home, belongs)
    return belongs, joined.inviter


def belonging(
    welcome: Welcome, shoal: str, identity: Identity, here: Iterable[str]
) -> ShoalMembership:
    """Return the membership a welcome grants; `here` are its sender's addresses."""
    others = [
        _with_node(address, peer.node)
        for peer in welcome.peers
        for address in peer.addresses
        if peer.node != identity.node
    ]
    return ShoalMembership(
        shoal=shoal,
        root=_root_of(welcome.grant),
        grant=welcome.grant,
        gates=tuple(dict.fromkeys([*here, *others])),
    )


async def _joined(
    identity: Identity, invitation: Invitation, wait_s: float, waits: Waits | None
) -> Joined:
    began = time.monotonic()
    while True:
        try:
            return await join(identity, invitation, name=petname(identity.node))
        except UnreachableError as error:
            waited_s = time.monotonic() - began
            has_time = waited_s + AGAIN_S < wait_s
            if not has_time or time.time() > invitation.expires_wall_s:
                raise
            if waits is not None:
                waits(error.because, waited_s)
        await asyncio.sleep(AGAIN_S)


def _root_of(grant: Grant) -> NodeId:
    """Return the root of a grant; the invitation vouches for the inviter's key."""
    while grant.delegation is not None:
        grant = grant.delegation
    return grant.signer


def _with_node(address: str, node: NodeId) -> str:
    return address if "/p2p/" in address else f"{address}/p2p/{node}"
