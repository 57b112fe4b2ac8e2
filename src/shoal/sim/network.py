"""Simulate the network: latency, loss, duplicates, reordering, cuts and dead links.

A link connects two nodes; both are told of it before its first message. When one of
them crashes, or the path is cut in either direction, each live side is told within
seconds. A later message opens a new link once the path is mended. Messages may get
lost even on a healthy link; the machines must cope.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from random import Random
from typing import Final, Protocol, final

from shoal.core.events import (
    Event,
    MessageReceived,
    PathMeasured,
    PeerConnected,
    PeerLost,
)
from shoal.model.ids import NodeId
from shoal.protocol.messages import AnyMessage, Grant
from shoal.sim.agenda import Agenda

SILENCE_S: Final = (3.0, 6.0)  # until a silent peer is given up
CLOSED_S: Final = (0.0, 1.0)  # until a closed socket is noticed
CLOSED_SHARE: Final = 0.6  # share of crashes that close sockets
GOSSIP_S: Final = (0.02, 0.8)
ECHO_S: Final = (0.0, 6.0)  # until something published is heard once more
NEIGHBOURS: Final = 3


class Port(Protocol):
    """A node as the network sees it."""

    id: NodeId
    index: int
    up: bool
    life: int  # rises with each crash; older messages are lost
    lag_s: float  # delay of messages to a slow node
    links: dict[NodeId, SimLink]
    grant: Grant | None

    def feed(self, event: Event) -> None:
        """Pass an event to the node's machine."""
        ...


@final
class SimLink:
    """A connection of two nodes; it ends when either crashes."""

    __slots__ = ("alive", "ends", "latency_s", "lives", "ready_at")

    def __init__(self, a: Port, b: Port, latency_s: float, ready_at: float) -> None:
        self.ends = (a, b)
        self.lives = (a.life, b.life)
        self.latency_s = latency_s  # without jitter
        self.ready_at = ready_at  # earliest arrival of a message
        self.alive = True  # until one side drops it or crashes

    def other(self, port: Port) -> Port:
        """Return the opposite end."""
        return self.ends[1] if self.ends[0] is port else self.ends[0]

    def current(self) -> bool:
        """Whether neither end has crashed since the link was made."""
        return (
            self.alive
            and self.ends[0].life == self.lives[0]
            and self.ends[1].life == self.lives[1]
        )


class Paths(Protocol):
    """Latencies by place, if the world has a map."""

    def latency_s(self, src: int, dst: int) -> float | None:
        """Return the latency between two ports; None if there is no path."""
        ...

    def carried(self, src: int, dst: int, message: AnyMessage) -> None:
        """Note a message in transit."""
        ...


Transform = Callable[[AnyMessage], AnyMessage]
Overheard = tuple[NodeId, NodeId, AnyMessage]
"""Sender, receiver and message."""


@final
class SimNetwork:
    """Carries messages between ports; rates may change at any time."""

    def __init__(
        self, agenda: Agenda, rng: Random, echoes: Random | None = None
    ) -> None:
        """Draw from `rng`; what is heard twice is drawn from `echoes`."""
        self.loss = 0.0
        self.duplication = 0.0
        self.jitter_s = 0.002  # scale of each message's extra latency
        self.ordered = False  # whether links keep message order
        self.transform: Transform | None = None  # such as encoding and decoding
        self.sent = 0
        self.paths: Paths | None = None  # replaces random latencies
        self.overheard: deque[Overheard] | None = None  # messages the forger sees
        self._agenda = agenda
        self._rng = rng
        self._chance = rng.random
        self._echoes = echoes or Random(0)
        self._ports: dict[NodeId, Port] = {}
        self._order: list[Port] = []
        self._links: dict[tuple[int, int], SimLink] = {}
        self._latency: dict[tuple[int, int], float] = {}
        self._blocked: dict[tuple[int, int], int] = {}  # cuts per direction
        self._last: dict[tuple[int, int], float] = {}  # latest arrival, if ordered

    # Nodes.

    def attach(self, port: Port) -> None:
        """Add a node; its index is the number of earlier nodes."""
        assert port.index == len(self._order)
        self._ports[port.id] = port
        self._order.append(port)

    def __len__(self) -> int:
        return len(self._order)

    # Messages.

    def send(self, src: Port, peer: NodeId, message: AnyMessage) -> None:
        """Send a message, opening a link if necessary."""
        link = src.links.get(peer)
        if link is None:
            link = self._dial(src, peer)
            if link is None:
                return
        a, b = link.ends
        dst = b if a is src else a
        if self._blocked and (src.index, dst.index) in self._blocked:
            return
        if self.paths is not None:
            if self.paths.latency_s(src.index, dst.index) is None:
                return
            self.paths.carried(src.index, dst.index, message)
        self.sent += 1
        if self.overheard is not None:
            self.overheard.append((src.id, dst.id, message))
        if self.loss and self._chance() < self.loss:
            return
        if self.transform is not None:
            message = self.transform(message)
        event = MessageReceived(src.id, message)
        self._carry(src, dst, link, event)
        if self.duplication and self._chance() < self.duplication:
            self._carry(src, dst, link, event)

    def reach(self, src: Port, peer: NodeId) -> None:
        """Open a link unless there is one."""
        if peer not in src.links:
            self._dial(src, peer)

    def publish(self, src: Port, message: AnyMessage) -> None:
        """Gossip to every node that any path reaches, also around cuts."""
        event = MessageReceived(src.id, message)
        reached = self._reachable(src) if self._blocked else None
        for port in self._order:
            if port is src or not port.up:
                continue
            if reached is not None and port.index not in reached:
                continue
            if self.paths is not None:
                if self.paths.latency_s(src.index, port.index) is None:
                    continue
                self.paths.carried(src.index, port.index, message)
            # Gossip takes several paths; one suffices.
            if self.loss and self._chance() < self.loss * self.loss:
                continue
            delay_s = self._rng.uniform(*GOSSIP_S) + port.lag_s
            self._agenda.after(delay_s, _hear, port, port.life, event)
            # What is published goes over links, too.
            if self.duplication and self._echoes.random() < self.duplication:
                delay_s += self._echoes.uniform(*ECHO_S)
                self._agenda.after(delay_s, _hear, port, port.life, event)

    def spread(self, src: Port, message: AnyMessage) -> None:
        """Send to a few neighbours, which never change."""
        count = len(self._order)
        event = MessageReceived(src.id, message)
        for step in range(1, min(NEIGHBOURS, count - 1) + 1):
            port = self._order[(src.index + step * step) % count]
            if port is src or not port.up or self.blocked(src, port):
                continue
            if self._chance() >= self.loss:
                delay_s = self._delay_s(src, port)
                self._agenda.after(delay_s, _hear, port, port.life, event)

    def _carry(self, src: Port, dst: Port, link: SimLink, event: Event) -> None:
        base = link.latency_s if self.paths is None else self._base_s(src, dst)
        at = self._agenda.now + self._delayed(base, src, dst)
        if at < link.ready_at:
            at = link.ready_at
        if self.ordered:
            key = (src.index, dst.index)
            at = self._last[key] = max(at, self._last.get(key, 0.0))
        self._agenda.at(at, _deliver, dst, src.id, link, event)

    def _delay_s(self, src: Port, dst: Port) -> float:
        return self._delayed(self._base_s(src, dst), src, dst)

    def _delayed(self, base: float, src: Port, dst: Port) -> float:
        # Usually about `jitter_s`, at most twenty times that. No logarithm: C libraries
        # may differ in its last bit, and a seed must give the same history everywhere.
        chance = self._chance()
        jitter = self.jitter_s * chance / (1.05 - chance)
        return base + jitter + dst.lag_s + src.lag_s

    def _base_s(self, src: Port, dst: Port) -> float:
        """Return the latency between two nodes, without jitter."""
        if self.paths is not None:
            return self.paths.latency_s(src.index, dst.index) or 0.0
        base = self._latency.get((src.index, dst.index))
        return self._draw_latency(src, dst) if base is None else base

    def _draw_latency(self, src: Port, dst: Port) -> float:
        base = self._rng.choice((0.0002, 0.001, 0.01, 0.04)) * self._rng.uniform(1, 2)
        self._latency[src.index, dst.index] = base
        self._latency[dst.index, src.index] = base
        return base

    def set_latency(self, one: Port, other: Port, latency_s: float) -> None:
        """Fix how far two nodes are apart, instead of drawing it."""
        self._latency[one.index, other.index] = latency_s
        self._latency[other.index, one.index] = latency_s

    # Links.

    def _dial(self, src: Port, peer: NodeId) -> SimLink | None:
        dst = self._ports.get(peer)
        if dst is None or dst is src or not dst.up:
            return None
        if self.blocked(src, dst) or self.blocked(dst, src):
            return None
        key = _pair(src, dst)
        link = self._links.get(key)
        if link is None or not link.current():
            delay_s = self._delay_s(src, dst)
            latency_s = self._base_s(src, dst)
            link = SimLink(src, dst, latency_s, self._agenda.now + delay_s)
            self._links[key] = link
            self._agenda.after(delay_s, self._connect, dst, link)
        src.links[peer] = link
        self._agenda.after(0.0, self._tell_connected, src, link)
        return link

    def _connect(self, port: Port, link: SimLink) -> None:
        """Tell the dialled side of the link; drop its older link."""
        if not link.current() or not port.up:
            return
        peer = link.other(port).id
        known = port.links.get(peer)
        if known is link:
            return
        if known is not None:
            port.links.pop(peer)
            port.feed(PeerLost(peer))
            if not link.current():
                return
        port.links[peer] = link
        self._tell_connected(port, link)

    def _tell_connected(self, port: Port, link: SimLink) -> None:
        peer = link.other(port)
        if not port.up or port.links.get(peer.id) is not link:
            return
        rtt_s = 2 * self._base_s(port, peer)
        self._agenda.after(rtt_s, _measure, port, link, PathMeasured(peer.id, rtt_s))
        port.feed(PeerConnected(peer.id, peer.grant))

    def disconnect(self, src: Port, peer: NodeId) -> None:
        """Close a link for one side; both sides are told."""
        link = src.links.get(peer)
        if link is not None:
            link.alive = False
            self._agenda.after(0.0, _lose, src, peer, link)
            dst = link.other(src)
            self._agenda.after(self._delay_s(src, dst), _lose, dst, src.id, link)

    def drop(self, port: Port, *, closed: bool | None = None) -> None:
        """End all links of a crashed node."""
        for peer, link in port.links.items():
            link.alive = False
            far = link.other(port)
            if closed is None:
                closed = self._rng.random() < CLOSED_SHARE
            bounds = CLOSED_S if closed else SILENCE_S
            self._agenda.after(self._rng.uniform(*bounds), _lose, far, port.id, link)
            assert far.id == peer
        port.links.clear()
        for key, link in list(self._links.items()):
            if port in link.ends and link.alive:  # dialled, not answered yet
                link.alive = False
                far = link.other(port)
                delay_s = self._rng.uniform(*SILENCE_S)
                self._agenda.after(delay_s, _lose, far, port.id, link)
                del self._links[key]

    # Cuts.

    def blocked(self, src: Port, dst: Port) -> bool:
        """Whether messages from one node to another are blocked."""
        key = (src.index, dst.index)
        if self.paths is not None and self.paths.latency_s(*key) is None:
            return True
        return key in self._blocked

    def notice_cuts(self) -> None:
        """End links between nodes that a cut separates, after a delay."""
        for link in list(self._links.values()):
            if link.alive and self.blocked(*link.ends):
                self._watch_silence(*link.ends)

    def cut(self, src: Iterable[Port], dst: Iterable[Port]) -> None:
        """Block messages from `src` nodes to `dst` nodes until mended."""
        far = list(dst)
        for a in src:
            for b in far:
                if a is not b:
                    key = (a.index, b.index)
                    self._blocked[key] = self._blocked.get(key, 0) + 1
                    self._watch_silence(a, b)

    def mend(self, src: Iterable[Port], dst: Iterable[Port]) -> None:
        """Undo one `cut` with the same arguments."""
        far = list(dst)
        for a in src:
            for b in far:
                key = (a.index, b.index)
                count = self._blocked.get(key, 0)
                if count > 1:
                    self._blocked[key] = count - 1
                else:
                    self._blocked.pop(key, None)

    def mend_all(self) -> None:
        """Remove all cuts."""
        self._blocked.clear()

    def _watch_silence(self, a: Port, b: Port) -> None:
        link = self._links.get(_pair(a, b))
        if link is None or not link.alive:
            return
        for port in link.ends:
            delay_s = self._rng.uniform(*SILENCE_S)
            self._agenda.after(delay_s, self._give_up, port, link)

    def _give_up(self, port: Port, link: SimLink) -> None:
        a, b = link.ends
        if not link.alive or self.blocked(a, b) or self.blocked(b, a):
            link.alive = False
            _lose(port, link.other(port).id, link)

    def _reachable(self, src: Port) -> dict[int, None]:
        reached = {src.index: None}
        frontier = [src]
        while frontier:
            at = frontier.pop()
            for port in self._order:
                if port.up and port.index not in reached and not self.blocked(at, port):
                    reached[port.index] = None
                    frontier.append(port)
        return reached


def _pair(a: Port, b: Port) -> tuple[int, int]:
    return (a.index, b.index) if a.index < b.index else (b.index, a.index)


def _deliver(dst: Port, peer: NodeId, link: SimLink, event: Event) -> None:
    if dst.links.get(peer) is link and dst.up:
        dst.feed(event)


def _hear(port: Port, life: int, event: Event) -> None:
    if port.up and port.life == life:
        port.feed(event)


def _measure(port: Port, link: SimLink, event: PathMeasured) -> None:
    _deliver(port, event.peer, link, event)


def _lose(port: Port, peer: NodeId, link: SimLink) -> None:
    if port.links.get(peer) is link:
        del port.links[peer]
        if port.up:
            port.feed(PeerLost(peer))
