"""A network in memory, for tests: any number of nodes in one process and one loop.

It obeys the protocols of `base`, and keeps the promises of the real one: frames go
through the codec, in order, after a delay; a link is up on both sides or on none;
queues are bounded. It waits only by timers of the running loop, so on a loop in
virtual time it takes no time at all. Equal runs give equal histories.
"""

from __future__ import annotations

import asyncio
import functools
import heapq
from collections import Counter
from typing import TYPE_CHECKING, Final, final

from shoal.net.outbox import Budget, Outbox
from shoal.protocol import codec
from shoal.protocol.messages import Announcement, LoadDigest, PeerAddress, Revocation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from shoal.model.ids import NodeId
    from shoal.net.base import Listener
    from shoal.protocol.messages import AnyMessage, Grant

    Admit = Callable[[NodeId, Grant | None], str | None]

SILENT_AFTER_S: Final = 5.0
REFUSE_S: Final = 30.0
RETRY_S: Final = 1.0
GIVE_UP_S: Final = 20.0


@final
class MemoryNetwork:
    """Joins nodes, and can cut them off from each other."""

    def __init__(self, latency_s: float = 0.001) -> None:
        """Let everything arrive so much later. Make it on a running loop."""
        self.latency_s = latency_s
        self.nodes: dict[NodeId, MemoryNode] = {}
        self._loop = asyncio.get_running_loop()
        self._cuts: set[frozenset[NodeId]] = set()
        # What is to happen, in the order of time and then of planning, which the
        # timers of a loop do not promise.
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._planned = 0

    def join(
        self,
        node: NodeId,
        grant: Grant | None,
        listener: Listener,
        admit: Admit | None = None,
    ) -> MemoryNode:
        """Return the links and the finder of a node that is there from now on."""
        assert node not in self.nodes
        joined = MemoryNode(self, node, grant, listener, admit)
        self.nodes[node] = joined
        for one in self.nodes.values():
            self.after(self.latency_s, one.estimate)
        return joined

    def cut(self, one: NodeId, other: NodeId) -> None:
        """Let nothing through between two nodes, who notice by silence only."""
        self._cuts.add(frozenset((one, other)))
        if (here := self.nodes.get(one)) and (link := here.link(other)):
            self.after(SILENT_AFTER_S, functools.partial(self._miss, link))

    def heal(self, one: NodeId, other: NodeId) -> None:
        """Let everything through again."""
        self._cuts.discard(frozenset((one, other)))

    def crash(self, node: NodeId) -> None:
        """Take a node away at once; the others see their links break."""
        gone = self.nodes.pop(node)
        gone.vanish()

    def reaches(self, one: NodeId, other: NodeId) -> bool:
        """Say whether anything gets through between two nodes."""
        there = one in self.nodes and other in self.nodes
        return there and not self.is_cut(one, other)

    def is_cut(self, one: NodeId, other: NodeId) -> bool:
        """Say whether two nodes were cut off from each other."""
        return frozenset((one, other)) in self._cuts

    def after(self, delay_s: float, act: Callable[[], None]) -> None:
        """Do something later; what is planned first for a time happens first."""
        self._planned += 1
        at = self._loop.time() + delay_s
        heapq.heappush(self._agenda, (at, self._planned, act))
        self._loop.call_at(at, self._act)

    def now(self) -> float:
        """Return what the clock of the loop says."""
        return self._loop.time()

    def _act(self) -> None:
        while self._agenda and self._agenda[0][0] <= self._loop.time():
            heapq.heappop(self._agenda)[2]()

    def _miss(self, link: _Link) -> None:
        if not self.reaches(*link.nodes):
            link.end(self.nodes.values())


@final
class _Link:
    """One link between two nodes; the same object at both ends."""

    def __init__(self, one: NodeId, other: NodeId) -> None:
        self.nodes = (one, other)
        self.alive = True

    def end(self, nodes: Iterable[MemoryNode]) -> None:
        """Tell the two ends, as far as they are still there."""
        self.alive = False
        for node in list(nodes):
            if node.node in self.nodes:
                node.lose(self)


@final
class MemoryNode:
    """Links and finder of one node. It is told by its listener, and by nobody else."""

    def __init__(
        self,
        network: MemoryNetwork,
        node: NodeId,
        grant: Grant | None,
        listener: Listener,
        admit: Admit | None,
    ) -> None:
        self.node: Final = node
        self.grant = grant
        self.counts: Counter[str] = Counter()
        self.keys: tuple[str, ...] = ()
        self._network = network
        self._listener = listener
        self._admit = admit
        self._budget = Budget()
        self._known: set[NodeId] = set()
        self._links: dict[NodeId, _Link] = {}
        self._dialling: dict[NodeId, float] = {}  # With the time of the first try.
        self._boxes: dict[NodeId, Outbox] = {}
        self._refused: dict[NodeId, float] = {}

    # Links.

    @property
    def addresses(self) -> tuple[str, ...]:
        """Say where this node can be dialled; nobody but this network can."""
        return (f"/memory/{self.node}",)

    @property
    def connected(self) -> tuple[NodeId, ...]:
        """Say to whom there is a link now."""
        return tuple(self._links)

    def link(self, peer: NodeId) -> _Link | None:
        """Return the link to a peer, if there is one."""
        return self._links.get(peer)

    def know(self, peer: NodeId, addresses: Sequence[str]) -> None:
        """Remember that a peer may be dialled, if it is on this network."""
        if f"/memory/{peer}" in addresses:
            self._known.add(peer)

    def send(self, peer: NodeId, message: AnyMessage) -> None:
        """Queue a message; all that is queued in one turn goes in one frame."""
        if not self._is_here() or self.refuses(peer):
            self.counts["dropped refused"] += 1
            return
        if peer not in self._links and peer not in self._known:
            self.counts["dropped unreachable"] += 1
            return
        box = self._boxes.setdefault(peer, Outbox(self._budget))
        if not len(box):
            self._network.after(0.0, lambda: self._pour(peer))
        box.put(message, codec.encode_one(message))

    def disconnect(self, peer: NodeId, reason: str) -> None:
        """Cut the link to a peer, and refuse it for a while."""
        self._refused[peer] = self._network.now() + REFUSE_S
        self._boxes.pop(peer, None)
        if (link := self._links.get(peer)) is not None:
            self._hang_up(link)

    async def close(self) -> None:
        """Leave: what was sent before still arrives."""
        if self._is_here():
            for peer in list(self._boxes):
                self._pour(peer)
            del self._network.nodes[self.node]
            self.vanish()

    # Finder.

    def publish(self, message: AnyMessage) -> None:
        """Gossip to all that can be reached."""
        self._gossip(message, self._network.nodes)

    def spread(self, message: AnyMessage) -> None:
        """Tell those to whom there is a link."""
        self._gossip(message, self._links)

    def look_up(self, lookup: int, key: str, limit: int) -> None:
        """Find who provides a key; answered by `looked_up`, smallest ids first."""
        reaches = self._network.reaches
        found = [
            PeerAddress(node, other.addresses)
            for node, other in sorted(self._network.nodes.items())
            if node != self.node and key in other.keys and reaches(self.node, node)
        ]
        answer = tuple(found[:limit])
        self._later(lambda: self._listener.looked_up(lookup, answer))

    def provide(self, keys: Sequence[str]) -> None:
        """Provide exactly these keys."""
        self.keys = tuple(keys)

    # What the network does.

    def vanish(self) -> None:
        """End all links, without a word to our own listener."""
        links, self._links = self._links, {}
        for link in links.values():
            self._hang_up(link)

    def estimate(self) -> None:
        """Tell how many nodes there are."""
        if self._is_here():
            self._listener.estimated(len(self._network.nodes))

    def refuses(self, peer: NodeId) -> bool:
        """Say whether a peer was cut off not long ago."""
        return self._network.now() < self._refused.get(peer, 0.0)

    def admits(self, other: MemoryNode) -> bool:
        """Say whether another node is let in by this one."""
        if self.refuses(other.node):
            return False
        if self._admit is not None and self._admit(other.node, other.grant):
            self.counts["not admitted"] += 1
            return False
        return True

    def rise(self, link: _Link, other: MemoryNode) -> None:
        """Note that a link is up, and how far the other end is."""
        self._links[other.node] = link
        self._listener.connected(other.node, other.grant)
        rtt_s = 2 * self._network.latency_s
        self._later(lambda: self._measure(link, other.node, rtt_s))

    def lose(self, link: _Link) -> None:
        """Note that a link is down."""
        peer = link.nodes[link.nodes[0] == self.node]
        if self._links.get(peer) is link:
            del self._links[peer]
            self._listener.lost(peer)

    def take(self, link: _Link, peer: NodeId, frame: bytes) -> None:
        """Take a frame that came over a link, if that is still up."""
        if self._links.get(peer) is link:
            self._listener.received(peer, codec.decode(frame))

    def overhear(self, origin: NodeId, data: bytes) -> None:
        """Take gossip, which is on its way for a while."""
        self._later(lambda: self._listener.heard(origin, codec.decode_gossip(data)))

    def _is_here(self) -> bool:
        return self._network.nodes.get(self.node) is self

    def _later(self, act: Callable[[], None]) -> None:
        self._network.after(
            self._network.latency_s, lambda: act() if self._is_here() else None
        )

    def _measure(self, link: _Link, peer: NodeId, rtt_s: float) -> None:
        if self._links.get(peer) is link:
            self._listener.measured(peer, rtt_s)

    def _hang_up(self, link: _Link) -> None:
        """End a link: here at once, there when the news arrive."""
        nodes = self._network.nodes
        if self._is_here():
            self.lose(link)
        self._network.after(self._network.latency_s, lambda: link.end(nodes.values()))

    def _pour(self, peer: NodeId) -> None:
        """Send what waits for a peer, over a link that is opened if need be."""
        box, link = self._boxes.get(peer), self._links.get(peer)
        if box is None or not len(box) or not self._is_here():
            return
        if link is None:
            self._dial(peer)
            return
        for frame in codec.frames_of(box.take(box.bytes + 1)):
            self._network.after(
                self._network.latency_s,
                functools.partial(self._arrive, link, peer, frame),
            )

    def _arrive(self, link: _Link, peer: NodeId, frame: bytes) -> None:
        other = self._network.nodes.get(peer)
        if other and link.alive and not self._network.is_cut(self.node, peer):
            other.take(link, self.node, frame)

    def _dial(self, peer: NodeId) -> None:
        if peer not in self._dialling:
            self._dialling[peer] = self._network.now()
            self._later(lambda: self._on_answer(peer))

    def _on_answer(self, peer: NodeId) -> None:
        if not self._network.reaches(self.node, peer) and peer not in self._links:
            self._on_silence(peer)
            return
        other = self._network.nodes[peer]
        del self._dialling[peer]
        if peer not in self._links:
            if not self.admits(other) or not other.admits(self):
                self._boxes.pop(peer).clear()
                return
            link = _Link(self.node, peer)
            self.rise(link, other)
            other.rise(link, self)
        self._pour(peer)

    def _on_silence(self, peer: NodeId) -> None:
        self.counts["dial failed"] += 1
        if self._network.now() - self._dialling[peer] < GIVE_UP_S:
            self._network.after(RETRY_S, lambda: self._on_answer(peer))
            return
        del self._dialling[peer]
        self._boxes.pop(peer).clear()

    def _gossip(self, message: AnyMessage, to: Iterable[NodeId]) -> None:
        if not isinstance(message, Announcement | LoadDigest | Revocation):
            self.counts["no gossip"] += 1
            return
        data = codec.encode_gossip(message)
        for node in to:
            if node != self.node and self._network.reaches(self.node, node):
                other = self._network.nodes[node]
                other.overhear(self.node, data)
