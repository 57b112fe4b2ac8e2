"""A host of libp2p that sends gossip which no honest one would.

It runs in a thread of its own, like the nodes do, and is steered from outside.
"""

import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Self, TypeVar

import trio
from libp2p.pubsub.pb.rpc_pb2 import RPC, Message
from libp2p.pubsub.validators import PUBSUB_SIGNING_PREFIX
from tests.unit.net.shoals import SHOAL, identity

from shoal.model.ids import NodeId
from shoal.net.libp2p.finding.address_book import peer_of
from shoal.net.libp2p.finding.gossip_guard import GossipGuard
from shoal.net.libp2p.thread.host_adapter import Libp2pHost, running
from shoal.net.libp2p.thread.host_parts import HostPlan, Wiring, id_of

T = TypeVar("T")
TOPIC = f"/shoal/{SHOAL}/all/1"
NEAR = f"/shoal/{SHOAL}/near/1"
START_S = 20.0


class Attacker:
    """Somebody who knows the address of a gate, and libp2p well."""

    def __init__(self, number: int) -> None:
        self.identity = identity(number)
        self._host: Libp2pHost | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._up = threading.Event()
        self._leave = trio.Event()
        self._thread = threading.Thread(target=trio.run, args=(self._run,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._up.wait(START_S)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._token is not None
        self._token.run_sync_soon(self._leave.set)
        self._thread.join(START_S)

    def meet(self, addresses: Sequence[str]) -> None:
        """Connect to a node, and exchange gossip with it."""
        peer = peer_of(addresses[0])
        assert peer is not None
        assert self._do(lambda host: host.connect(peer, addresses))
        assert self._do(lambda host: host.befriend(peer))

    def message(self, data: bytes, number: int | None = None) -> Message:
        """Return a message with these bytes, numbered and signed as ours."""
        message = Message(
            data=data,
            topicIDs=[TOPIC],
            from_id=id_of(self.identity.node).to_bytes(),
            seqno=(number or time.time_ns() // 1_000).to_bytes(8, "big"),
        )
        payload = PUBSUB_SIGNING_PREFIX.encode() + message.SerializeToString()
        message.signature = self.identity.sign(payload)
        return message

    def forged(self, data: bytes, victim: NodeId) -> Message:
        """Return a message in the name of somebody else."""
        message = self.message(data)
        message.from_id = id_of(victim).to_bytes()
        return message

    def send(self, *messages: Message) -> None:
        """Send messages to all neighbours."""

        async def send(host: Libp2pHost) -> None:
            for peer in list(host._gossip.peers):
                for message in messages:
                    host._router.send_rpc(peer, RPC(publish=[message]))
            await trio.lowlevel.checkpoint()

        self._do(send)

    def _do(self, work: Callable[[Libp2pHost], Awaitable[T]]) -> T:
        assert self._host is not None
        return trio.from_thread.run(work, self._host, trio_token=self._token)

    async def _run(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        plan = HostPlan(
            self.identity.key.private_bytes_raw(),
            ("/ip4/127.0.0.1/tcp/0",),
            (TOPIC,),
            NEAR,
            is_gate=False,
        )
        wiring = Wiring(
            guard=GossipGuard(time.monotonic()),
            counts=Counter(),
            shown=lambda: (),
            deliver=lambda _origin, _message: None,
            may_relay=lambda _peer: False,
        )
        async with running(plan, wiring) as self._host:
            self._up.set()
            await self._leave.wait()
