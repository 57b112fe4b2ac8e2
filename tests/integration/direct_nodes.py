"""Nodes with direct links on loopback, and what they tell about themselves."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

import uvloop
from tests.unit.net.shoals import Gatekeeper, granted, identity

from shoal.model.ids import Attempt, LeaseId, NodeId
from shoal.net.direct.links import DirectLinks
from shoal.net.direct.settings import LinkSettings
from shoal.net.identity.identity import Identity
from shoal.protocol.admission import AdmissionWanted
from shoal.protocol.messages import (
    AnyMessage,
    Grant,
    Hello,
    Join,
    Output,
    PeerAddress,
    Refusal,
    Release,
    Welcome,
)

T = TypeVar("T")
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop] | None] = {
    "asyncio": None,
    "uvloop": uvloop.new_event_loop,
}
OPEN: list[DirectLinks] = []
Desk = Callable[[NodeId, Join | AdmissionWanted, str], Awaitable[Welcome | Refusal]]


class Log:
    """A listener that remembers everything."""

    def __init__(self) -> None:
        self.events: list[tuple[str, NodeId]] = []
        self.messages: dict[NodeId, list[AnyMessage]] = {}
        self.frames: list[int] = []
        self.rtts: list[float] = []
        self.grants: dict[NodeId, Grant | None] = {}

    def connected(self, peer: NodeId, grant: Grant | None) -> None:
        self.events.append(("connected", peer))
        self.grants[peer] = grant

    def lost(self, peer: NodeId) -> None:
        self.events.append(("lost", peer))

    def received(self, peer: NodeId, messages: Sequence[AnyMessage]) -> None:
        self.messages.setdefault(peer, []).extend(messages)
        self.frames.append(len(messages))

    def heard(self, origin: NodeId, message: AnyMessage) -> None:
        raise AssertionError("no gossip here")

    def looked_up(self, lookup: int, providers: Sequence[PeerAddress]) -> None:
        raise AssertionError("no DHT here")

    def measured(self, peer: NodeId, rtt_s: float) -> None:
        self.rtts.append(rtt_s)

    def estimated(self, nodes: int) -> None:
        raise AssertionError("no DHT here")

    def count(self, event: str, peer: NodeId) -> int:
        return self.events.count((event, peer))


class Node:
    """One node with its links. Make it with `node`."""

    def __init__(self, identity: Identity, links: DirectLinks, log: Log) -> None:
        self.identity = identity
        self.links = links
        self.log = log
        self.id = identity.node

    def know(self, other: "Node") -> None:
        self.links.know(other.id, other.links.addresses)

    def say(self, other: "Node", message: AnyMessage) -> None:
        self.links.send(other.id, message)

    def heard(self, other: "Node") -> list[AnyMessage]:
        return self.log.messages.get(other.id, [])

    def is_linked(self, other: "Node") -> bool:
        return other.id in self.links.connected


async def node(
    number: int,
    *,
    grant: Grant | None = None,
    gatekeeper: Gatekeeper | None = None,
    generation: int = 0,
    desk: Desk | None = None,
    settings: LinkSettings | None = None,
) -> Node:
    """Start a node on loopback; of the same number it has the same identity."""
    who = identity(number)
    log = Log()
    links = DirectLinks(
        who,
        grant or granted(who.node),
        admit=gatekeeper or Gatekeeper(),
        listener=log,
        hello=Hello(generation=generation, name=f"node {number}"),
        desk=desk,
        settings=settings,
    )
    OPEN.append(links)
    await links.listen("127.0.0.1")
    return Node(who, links, log)


async def eventually(condition: Callable[[], object], timeout_s: float = 60.0) -> None:
    """Wait until something is true; fail if that takes too long."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def run(work: Coroutine[Any, Any, T], loop: str = "uvloop") -> T:
    """Run a test on a loop of this kind; what callbacks raise makes it fail."""
    problems: list[dict[str, Any]] = []
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.get_loop().set_exception_handler(lambda _, what: problems.append(what))
        result = runner.run(_closing(work))
    assert problems == []
    return result


async def _closing(work: Coroutine[Any, Any, T]) -> T:
    """Close all nodes even if a test fails, or the loop waits for them for ever."""
    OPEN.clear()
    try:
        return await work
    finally:
        await asyncio.gather(*(links.close() for links in OPEN))


async def closed(*nodes: Node) -> None:
    """Close all nodes."""
    await asyncio.gather(*(one.links.close() for one in nodes))


def numbered(number: int) -> Release:
    """Return a message that can be told from others."""
    return Release(leases=(LeaseId(f"w/{number}"),))


def numbers(messages: Sequence[AnyMessage]) -> list[int]:
    """Return the numbers of numbered messages, in order."""
    releases = [message for message in messages if isinstance(message, Release)]
    return [int(release.leases[0][2:]) for release in releases]


def output(node: NodeId, offset: int, size: int = 32_768) -> Output:
    """Return a piece of output: large, and dropped first."""
    attempt = Attempt(node, 1, 1)
    data = bytes(size)
    return Output(attempt=attempt, stream="stdout", offset=offset, data=data)
