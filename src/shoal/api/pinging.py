"""How far away a node is now: a round trip over the link that carries all else."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from shoal.api import shoal_pb2 as pb
from shoal.api.views import name_of
from shoal.model.ids import NodeId
from shoal.net.identity import public_key

if TYPE_CHECKING:
    from shoal.net.ways import Ways

TIMEOUT_S: Final = 5.0
TIMEOUT_MAX_S: Final = 15.0
LOOK_S: Final = 0.02


async def answer(own: NodeId, links: Ways, request: pb.PingRequest) -> pb.PingReply:
    """Return how far a node is; without a round trip, if none came about in time."""
    peer = NodeId(request.node)
    public_key(peer)  # Raises unless it is the id of a node.
    reply = pb.PingReply(node=name_of(peer), path="self", rtt_s=0.0)
    if peer == own:
        return reply
    reply.ClearField("rtt_s")
    timeout_s = min(request.timeout_s or TIMEOUT_S, TIMEOUT_MAX_S)
    try:
        async with asyncio.timeout(timeout_s):
            links.reach(peer)
            while not links.path(peer):  # noqa: ASYNC110 - Nobody tells, of one peer.
                await asyncio.sleep(LOOK_S)
            reply.rtt_s = await links.ping(peer)
    except TimeoutError:
        reply.trouble = links.trouble(peer)
    reply.path = links.path(peer)
    return reply
