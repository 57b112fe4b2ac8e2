"""Measures the round trip to a node, over the link that carries all traffic."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from shoal.api import shoal_pb2 as pb
from shoal.api.service.views import name_of
from shoal.model.ids import NodeId
from shoal.net.identity.identity import public_key

if TYPE_CHECKING:
    from shoal.net.link_selector import LinkSelector

TIMEOUT_S: Final = 5.0
TIMEOUT_MAX_S: Final = 15.0
LOOK_S: Final = 0.02


async def answer(
    own: NodeId, links: LinkSelector, request: pb.PingRequest
) -> pb.PingReply:
    """Ping a node; on timeout, the reply has the trouble and no round trip."""
    peer = NodeId(request.node)
    public_key(peer)  # Raises if it is not a node id.
    reply = pb.PingReply(node=name_of(peer), path="self", rtt_s=0.0)
    if peer == own:
        return reply
    reply.ClearField("rtt_s")
    timeout_s = min(request.timeout_s or TIMEOUT_S, TIMEOUT_MAX_S)
    try:
        async with asyncio.timeout(timeout_s):
            links.reach(peer)
            while not links.path(peer):  # noqa: ASYNC110 - No event per peer.
                await asyncio.sleep(LOOK_S)
            reply.rtt_s = await links.ping(peer)
    except TimeoutError:
        reply.trouble = links.trouble(peer)
    reply.path = links.path(peer)
    return reply
