"""The machine that chooses the overlay of load gossip: which neighbours are told.

Theory of operation. `LoadGossip` draws neighbours anew for each round unless it is
told whom to tell (`NeighboursChanged`). That follows from the name of the overlay:

- `random`: nothing. A few neighbours are drawn, as ever.
- `flood`: all linked peers.
- `mst`: the edges of this node in a spanning tree of least cost.
- `nearest`: these, and the few nearest peers.

A tree needs more than this node sees. So each node tells its peers whom it is linked
to, and about how far each is (`Neighbourhood`), when that changes, and every `REWIRE_S`
at most. Of its own links and those that both ends told, it makes the tree of least cost
and keeps its own edges: the local tree of Li, Hou and Sha (2003). If all nodes see the
same, these edges join all nodes that links join; where everybody is linked to
everybody, they are one tree.

What makes views alike: distances come in doublings, only the longer of what both ends
told counts, and of equally long links all prefer the same ones. Views differ all the
same while things change, and a peer may lie. So, first, a link that only one end told
is no reason to drop another. Second, who tells nothing (another overlay, an older node)
is always told. Third, each piece of news also goes to one linked peer that is drawn
(`STRAYS`): who is in the middle of a tree, and silent, parts nobody for long.

There are no deadlines: links measure round trips about once a second anyway. Nothing is
durable. Bounded are the peers, and the links that each tells.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from heapq import nsmallest
from typing import TYPE_CHECKING, Any, Final, final

from shoal.core.events import (
    MessageReceived,
    NeighboursChanged,
    PathMeasured,
    PeerConnected,
    PeerLost,
    Send,
    Tell,
)
from shoal.core.machine import Mount
from shoal.protocol.limits import FARNESS_MAX, MARK_MAX, NEIGHBOURHOOD_MAX
from shoal.protocol.messages import Neighbourhood

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shoal.core.events import Effect, Event
    from shoal.model.ids import NodeId
    from shoal.model.kinds import Overlay

NEAR_US: Final = 2_000
"""Peers nearer than this are all equally near: a busy processor adds as much."""

STAY: Final = 1.5
"""A distance that was told stands until what is measured is so many times off."""

REWIRE_S: Final = 5.0
"""Between two looks at the links, unless one is lost or new."""

STRAYS: Final = 1
"""Drawn peers who are told of each piece of news, besides the chosen ones."""

NEAREST: Final = 3
"""Peers that `nearest` tells besides those of its tree."""

PEERS_MAX: Final = 1_024

Edge = tuple[int, int, int, int]
"""How long it is, its place among equally long ones, and both ends."""


@final
class GossipOverlay:
    """Decides which linked peers are told what a node hears of load."""

    mount = Mount(takes={Neighbourhood: None}, hears=(PathMeasured,))

    def __init__(
        self, node: NodeId, rtts_us: Mapping[NodeId, float], overlay: Overlay
    ) -> None:
        """Read what round trips take from `rtts_us`, which is a live view."""
        self.overlay = overlay
        self.chosen: tuple[NodeId, ...] | None = None  # None: drawn by `LoadGossip`
        self._mark = mark_of(node)
        self._rtts_us = rtts_us
        self._far: dict[NodeId, int] = {}  # linked peers, and how far they are
        self._told: dict[NodeId, dict[int, int]] = {}  # what each said of its links
        self._said: dict[NodeId, Neighbourhood] = {}  # what each knows of ours
        self._look_at = 0.0
        self._takers: dict[type, Callable[[Any, float], list[Effect]]] = {
            PeerConnected: self._on_connected,
            PeerLost: self._on_lost,
            PathMeasured: self._on_measured,
            MessageReceived: self._on_message,
        }

    @property
    def _is_tree(self) -> bool:
        return self.overlay in ("mst", "nearest")

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take in one fact; return what to do about it. Raising is a bug."""
        if self.overlay == "random":
            return []
        take = self._takers.get(type(event))
        return [] if take is None else take(event, now)

    def next_deadline(self) -> float | None:
        """When to deliver `DeadlineReached`: never, round trips are often enough."""
        return None

    def _on_connected(self, event: PeerConnected, _: float) -> list[Effect]:
        self._far.setdefault(event.peer, 0)  # near, until it is measured
        return self._choose()

    def _on_lost(self, event: PeerLost, _: float) -> list[Effect]:
        self._far.pop(event.peer, None)
        self._told.pop(event.peer, None)
        self._said.pop(event.peer, None)
        return self._choose()

    def _on_message(self, event: MessageReceived, _: float) -> list[Effect]:
        message = event.message
        if type(message) is Neighbourhood and event.peer in self._far:
            self._told[event.peer] = dict(message.links)
        return []

    def _on_measured(self, _event: PathMeasured, now: float) -> list[Effect]:
        if now < self._look_at or not self._is_tree:
            return []
        self._look_at = now + REWIRE_S
        for peer, far in self._far.items():
            if peer in self._rtts_us:
                self._far[peer] = _farness(self._rtts_us[peer], far)
        nearest = nsmallest(
            NEIGHBOURHOOD_MAX, ((far, mark_of(peer)) for peer, far in self._far.items())
        )
        message = Neighbourhood(links=tuple((mark, far) for far, mark in nearest))
        effects: list[Effect] = []
        for peer in self._far:
            if self._said.get(peer) != message:
                self._said[peer] = message
                effects.append(Send(peer, message))
        return effects + self._choose()

    def _choose(self) -> list[Effect]:
        """Choose neighbours anew; say so if they are not those of before."""
        chosen = tuple(self._far)
        if self._is_tree:
            kept = self._branches()
            if self.overlay == "nearest":
                # Of equally near ones each node takes others, so that all get as much.
                order = (
                    (far, mark_of(peer) ^ self._mark, peer)
                    for peer, far in self._far.items()
                )
                kept.update((peer, None) for *_, peer in nsmallest(NEAREST, order))
            chosen = tuple(kept)
        if chosen == self.chosen:
            return []
        self.chosen = chosen
        return [Tell(NeighboursChanged(chosen, strays=STRAYS))]

    def _branches(self) -> dict[NodeId, None]:
        """Return the peers that this node is joined to in its local tree (Kruskal)."""
        peers = list(self._far)[:PEERS_MAX]
        marks = [mark_of(peer) for peer in peers]
        places = {mark: place for place, mark in enumerate(marks)}
        home = len(peers)
        edges: list[Edge] = []
        for place, (peer, mark) in enumerate(zip(peers, marks, strict=True)):
            told = self._told.get(peer, {})
            far = max(self._far[peer], told.get(self._mark, 0))
            edges.append((far, _order(mark, self._mark), place, home))
            for other in told:
                there = places.get(other, home)
                if there < place:
                    length = self._length(peer, peers[there])
                    if length is not None:
                        edges.append((length, _order(mark, other), place, there))
        joined = list(range(home + 1))

        def root(place: int) -> int:
            while joined[place] != place:
                joined[place] = joined[joined[place]]
                place = joined[place]
            return place

        kept: dict[NodeId, None] = {}
        for _, _, one, other in sorted(edges):
            here, there = root(one), root(other)
            if here != there:
                joined[here] = there
                if other == home:
                    kept[peers[one]] = None
        return dict.fromkeys(peer for peer in peers if peer in kept)

    def _length(self, one: NodeId, other: NodeId) -> int | None:
        """Return how long the link of two peers is; None unless both tell of it."""
        there = self._told.get(one, {}).get(mark_of(other))
        back = self._told.get(other, {}).get(mark_of(one))
        return None if there is None or back is None else max(there, back)


@lru_cache(maxsize=4 * PEERS_MAX)
def mark_of(node: NodeId) -> int:
    """Return the short name of a node in a `Neighbourhood`."""
    return int.from_bytes(hashlib.sha256(node.encode()).digest()[:4], "big")


def _order(mark: int, other: int) -> int:
    """Return the place of a link among equally long ones: at random, but for all alike.

    By the marks of single nodes one node would be in the middle of all others, and
    could keep from them whatever it liked.
    """
    low, high = sorted((mark, other))
    return (low * 0x9E3779B1 ^ high * 0x85EBCA77) & MARK_MAX


def _farness(rtt_us: float, told: int) -> int:
    """Return how many doublings of what is near a round trip takes.

    What was told stands as long as it is about right, so that trees are not made anew
    because a processor was busy.
    """
    for us in (rtt_us * STAY, rtt_us / STAY):
        if min(FARNESS_MAX, int(us / NEAR_US).bit_length()) == told:
            return told
    return min(FARNESS_MAX, int(rtt_us / NEAR_US).bit_length())
