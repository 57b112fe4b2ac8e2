"""Nodes of libp2p on loopback, and what they tell about themselves."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from tests.unit.net.shoals import SHOAL, Gatekeeper, granted, identity

from shoal.model.addresses import stream_ones
from shoal.model.ids import NodeId
from shoal.net.identity.identity import Identity
from shoal.net.libp2p.port import Libp2p
from shoal.net.libp2p.settings import Greeting, Libp2pSettings, RelayRoom
from shoal.protocol.messages import AnyMessage, Grant, Hello, PeerAddress

LOOPBACK = ("/ip4/127.0.0.1/tcp/0",)
START_S = 30.0
WAIT_S = 20.0


class Log:
    """A listener that remembers everything."""

    def __init__(self) -> None:
        self.links: list[tuple[str, NodeId]] = []
        self.messages: list[tuple[NodeId, AnyMessage]] = []
        self.gossip: list[tuple[NodeId, AnyMessage]] = []
        self.found: dict[int, Sequence[PeerAddress]] = {}
        self.rtts: list[float] = []
        self.relayed: dict[NodeId, bool] = {}
        self.ends: list[bool] = []
        self.places: dict[NodeId, tuple[str, ...]] = {}
        self.moves = 0
        self.size = 0

    def opened(
        self, peer: NodeId, grant: Grant | None, *, generation: int, is_relayed: bool
    ) -> None:
        self.links.append(("connected", peer))
        self.relayed[peer] = is_relayed

    def ended(self, peer: NodeId, *, is_definite: bool) -> None:
        self.links.append(("lost", peer))
        self.ends.append(is_definite)

    def moved(self, peer: NodeId) -> None:
        self.links.append(("moved", peer))

    def met(self, peer: NodeId, addresses: Sequence[str]) -> None:
        self.places[peer] = tuple(addresses)

    def moved_house(self) -> None:
        self.moves += 1

    def received(self, peer: NodeId, messages: Sequence[AnyMessage]) -> None:
        self.messages += [(peer, message) for message in messages]

    def heard(self, origin: NodeId, message: AnyMessage) -> None:
        self.gossip.append((origin, message))

    def looked_up(self, lookup: int, providers: Sequence[PeerAddress]) -> None:
        self.found[lookup] = providers

    def measured(self, peer: NodeId, rtt_s: float) -> None:
        self.rtts.append(rtt_s)

    def estimated(self, nodes: int) -> None:
        self.size = nodes


class Node:
    """One node with libp2p, on this event loop and a thread of its own."""

    def __init__(
        self,
        someone: Identity,
        settings: Libp2pSettings,
        *,
        show: Callable[[NodeId], Grant | None] = granted,
    ) -> None:
        self.node = someone.node
        self.identity = someone
        self.log = Log()
        self.hello = Hello(grant=show(someone.node))
        self.bombs = 0  # so many greetings end in an error of the host's own
        greeting = Greeting(hello=self._greet, admit=Gatekeeper())
        self.port = Libp2p(someone, settings, greeting, self.log)

    def _greet(self) -> Hello:
        if self.bombs:
            self.bombs -= 1
            raise RuntimeError("died by a test")
        return self.hello

    @property
    def counts(self) -> dict[str, int]:
        return self.port.counts

    def has_heard(self, message: AnyMessage) -> bool:
        return any(heard == message for _, heard in self.log.gossip)


@asynccontextmanager
async def shoal(
    members: int,
    *,
    strangers: int = 0,
    listen: tuple[str, ...] = LOOPBACK,
    mdns: bool = False,
    shown: Callable[[NodeId], Grant | None] = lambda _node: None,
    relay: RelayRoom | None = None,
    direct: tuple[str, ...] = (),
) -> AsyncIterator[list[Node]]:
    """Run a gate and members that know only the gate; strangers come last.

    Strangers have the grant that is `shown`. With mDNS there is no gate, and nobody
    knows anybody.
    """
    nodes: list[Node] = []
    try:
        settings = Libp2pSettings(
            shoal=SHOAL,
            listen=LOOPBACK,
            is_gate=not mdns,
            mdns=mdns,
            relay=relay or RelayRoom(),
        )
        nodes.append(await started(Node(identity(1), settings)))
        settings = Libp2pSettings(
            shoal=SHOAL,
            listen=listen,
            direct=direct,
            gates=() if mdns else stream_ones(nodes[0].port.addresses),
            is_relayed=not listen,
            mdns=mdns,
        )
        others = [
            Node(identity(2 + n), settings, show=granted if n < members - 1 else shown)
            for n in range(members - 1 + strangers)
        ]
        nodes += others
        await asyncio.gather(*(started(node) for node in others))
        yield nodes
    finally:
        await asyncio.gather(*(node.port.close() for node in nodes))


async def started(node: Node) -> Node:
    """Start a node and wait until it listens."""
    node.port.start()
    async with asyncio.timeout(START_S):
        await node.port.ready.wait()
    return node


async def eventually(condition: Callable[[], bool], timeout_s: float = WAIT_S) -> None:
    """Wait until something is true; fail if that takes too long."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - another thread's pace
            await asyncio.sleep(0.02)


async def meshed(nodes: Sequence[Node]) -> None:
    """Wait until all nodes know of each other."""
    await eventually(lambda: all(n.log.size >= len(nodes) for n in nodes))
