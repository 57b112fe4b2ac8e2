"""The load-gossip machine: spread which workers have room, from neighbour to neighbour.

Theory of operation. The worker of this node says what room it has (`Spread`), and
neighbours say what they heard (`LoadDigests`). While there is news, a node sends it to
some neighbours about once every `GOSSIP_S`; without news it is silent. A rumour is news
if it is signed and the known one is not, or if its epoch or number is later. It is
passed on at most `HOPS_MAX` times, fewer in a large shoal (`SizeEstimated`). Either the
neighbours are given, such as the edges of a spanning tree (`NeighboursChanged`), and
each is told once, as well as some `strays` that are drawn from the others, and a new
neighbour is told all that is known; or `fan_out` of the linked peers are drawn anew for
each round, and a rumour is told for `repeats` rounds.

In a shoal of more than `known_max` nodes nobody can know all workers, so a rumour goes
a few hops only. There a node tells the same `fan_out * repeats` peers each time, once,
for as long as they are linked. So what a worker says next reaches those who heard what
it said before. If peers were drawn anew, news would reach others each time, and most of
what a node believes would be out of date.

A rumour is a hint: it only suggests which worker to ask. But a rumour that a worker is
full keeps others from asking it. So each worker signs what it says, and an unsigned
rumour, as older nodes send it, counts only until a signed one is heard.

Nothing is durable: after a restart rumours come anew. At most `known_max` workers are
remembered, and a message has at most `RUMOURS_MAX` rumours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import zip_longest
from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.core.events import (
    DeadlineReached,
    Effect,
    Event,
    MessageReceived,
    NeighboursChanged,
    PeerConnected,
    PeerLost,
    Send,
    SizeEstimated,
    Spread,
)
from shoal.core.machine import Mount
from shoal.core.timing import GOSSIP_S
from shoal.model.resources import WHOLE_GPU_MILLI
from shoal.protocol.limits import HOPS_MAX, RUMOURS_MAX
from shoal.protocol.messages import LoadDigest, LoadDigests, Rumour

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from random import Random

    from shoal.model.ids import NodeId

FAN_OUT: Final = 3
"""Neighbours told in one round, when they are drawn."""

REPEATS: Final = 3
"""Rounds in which a drawn neighbour is told the same: chance misses some."""

SIZE_WAIT_S: Final = 2.0
"""The first round waits so long for the size of the shoal, which bounds how far
news goes."""

Signer = Callable[[bytes], bytes]
Verifier = Callable[["NodeId", bytes, bytes], bool]
"""Says whether this node made, of this payload, this signature. Never raises."""

KNOWN_MAX: Final = 1_024
"""Workers remembered; in a larger shoal news stays in the neighbourhood."""


class GossipNeighbours(msgspec.Struct, frozen=True, kw_only=True):
    """Which neighbours a node tells: all of `fixed`, or `fan_out` drawn from its links.

    `drawn_from` replaces the links as the set to draw from, where every node can be
    reached.
    """

    fixed: tuple[NodeId, ...] | None = None
    strays: int = 0  # others who are told, too, drawn from the links
    drawn_from: Sequence[NodeId] | None = None
    fan_out: int = FAN_OUT
    repeats: int = REPEATS
    interval_s: float = GOSSIP_S
    known_max: int = KNOWN_MAX


class _News(msgspec.Struct, gc=False):
    """What remains to be passed on about one worker."""

    left: int  # rounds, when neighbours are drawn
    told_by: list[NodeId]  # neighbours who know it already
    passed: Rumour | None = None  # as it is passed on, once it was


@final
class LoadGossip:
    """Decides which rumours a node passes on and to which neighbours."""

    mount = Mount(
        takes={LoadDigests: None}, hears=(NeighboursChanged,), claims=(Spread,)
    )

    def __init__(
        self,
        node: NodeId,
        rng: Random,
        neighbourhood: GossipNeighbours | None = None,
        *,
        sign: Signer | None = None,
        verify: Verifier | None = None,
    ) -> None:
        """Sign our worker's rumours; without `verify`, accept all signatures."""
        self.node = node
        self.forged = 0  # rumours whose signature was not that of their worker
        self.news = 0  # rumours that were news, of others
        self.sent = 0  # messages
        self._sign = sign
        self._verify = verify
        self._rng = rng
        self._hood = neighbourhood or GossipNeighbours()
        self._known: dict[NodeId, Rumour] = {}  # the last that was heard is at the end
        self._signatures: dict[NodeId, bytes] = {}  # of what is known, or nothing
        self._news: dict[NodeId, _News] = {}
        self._linked: dict[NodeId, None] = {}
        self._audience: list[NodeId] = []  # whom we tell in a large shoal
        self._is_large = False  # whether there are more nodes than can be known
        self._hops: int | None = None  # None until the size of the shoal is known
        self._due: float | None = None

    @property
    def known(self) -> Mapping[NodeId, Rumour]:
        """The latest rumour about each worker; a live view."""
        return self._known

    def signed_epochs(self) -> Iterator[tuple[NodeId, int]]:
        """Yield the epochs of workers whose latest rumour was signed."""
        for node, rumour in self._known.items():
            if self._signatures[node]:
                yield node, rumour.epoch

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take in one fact; return what to do about it. Raising is a bug."""
        if type(event) is DeadlineReached:
            return self._on_deadline(now)
        match event:
            case MessageReceived():
                if type(event.message) is LoadDigests:
                    self._on_rumours(event.peer, event.message, now)
            case PeerConnected():
                return self._on_connected(event.peer)
            case PeerLost():
                self._linked.pop(event.peer, None)
                self._forget(event.peer)
            case NeighboursChanged():
                return self._on_neighbours(event)
            case SizeEstimated():
                self._on_size(event.nodes)
            case _:
                pass
        return []

    def next_deadline(self) -> float | None:
        """When to deliver `DeadlineReached`, if ever."""
        return self._due

    def claimed(self, effect: Effect, now: float) -> list[Effect]:
        """Let what our worker says of its room go from neighbour to neighbour."""
        if type(effect) is Spread and type(effect.message) is LoadDigest:
            self.tell(effect.message, now)
            return []
        return [effect]

    def tell(self, digest: LoadDigest, now: float) -> None:
        """Start to pass on the load of our own worker."""
        load = digest.load
        rumour = Rumour(
            digest.node,
            digest.epoch,
            digest.seq,
            HOPS_MAX,
            load.cpu_milli,
            load.memory_bytes,
            load.gpu_milli.count(WHOLE_GPU_MILLI),
            max(load.gpu_milli, default=0),
            max(load.gpu_memory, default=0),
            load.draining,
        )
        signature = b"" if self._sign is None else self._sign(rumour_payload(rumour))
        self._note(rumour, signature, None, now)

    def _on_rumours(self, peer: NodeId, digests: LoadDigests, now: float) -> None:
        known, node, signatures = self._known, self.node, self._signatures
        signed = zip_longest(digests.rumours, digests.signatures, fillvalue=b"")
        for rumour, signature in signed:
            if type(rumour) is not Rumour or type(signature) is not bytes:
                break  # More signatures than rumours.
            about = rumour.node
            if about == node:
                continue
            heard = known.get(about)
            if heard is not None:
                # What a worker has signed counts, whatever others make of it.
                order = (bool(signature), rumour.epoch, rumour.seq)
                known_order = (bool(signatures[about]), heard.epoch, heard.seq)
                if order == known_order:
                    if (news := self._news.get(about)) is not None:
                        news.told_by.append(peer)
                    continue
                if about != peer and order < known_order:
                    continue
            if about != peer and not self._is_genuine(rumour, signature):
                self.forged += 1
                continue
            self.news += 1
            self._note(rumour, signature, peer, now)

    def _is_genuine(self, rumour: Rumour, signature: bytes) -> bool:
        """Whether the worker itself signed this rumour, as far as we can verify."""
        if self._verify is None or not signature:
            return True
        return self._verify(rumour.node, rumour_payload(rumour), signature)

    def _note(
        self, rumour: Rumour, signature: bytes, peer: NodeId | None, now: float
    ) -> None:
        """Remember a rumour, and pass it on if it may go further."""
        about = rumour.node
        if about in self._known:
            del self._known[about]  # It goes to the end: the oldest are dropped first.
        elif len(self._known) >= self._hood.known_max:
            self._forget(next(other for other in self._known if other != self.node))
        self._known[about] = rumour
        self._signatures[about] = signature
        if rumour.hops == 0:
            self._news.pop(about, None)
            return
        told_by = [] if peer is None else [peer]
        self._news[about] = _News(1 if self._is_large else self._hood.repeats, told_by)
        if self._due is None:
            # Nobody keeps step: a round begins somewhere in the next interval.
            pause_s = self._hood.interval_s * self._rng.uniform(0.5, 1.0)
            if self._hops is None:
                pause_s = max(pause_s, SIZE_WAIT_S)
            self._due = now + pause_s

    def _on_connected(self, peer: NodeId) -> list[Effect]:
        self._linked[peer] = None
        fixed = self._hood.fixed
        return [] if fixed is None or peer not in fixed else self._catch_up(peer)

    def _on_neighbours(self, event: NeighboursChanged) -> list[Effect]:
        before = self._hood.fixed or ()
        self._hood = msgspec.structs.replace(
            self._hood, fixed=event.neighbours, strays=event.strays
        )
        effects: list[Effect] = []
        for peer in event.neighbours:
            if peer in self._linked and peer not in before:
                effects += self._catch_up(peer)
        return effects

    def _catch_up(self, peer: NodeId) -> list[Effect]:
        """Send a new or returning neighbour the rumours it may have missed."""
        passed = [
            _with_hops(rumour, self._hops_left(rumour))
            for rumour in list(self._known.values())[-RUMOURS_MAX:]
            if rumour.hops and rumour.node != peer
        ]
        if not passed:
            return []
        self.sent += 1
        return [Send(peer, self._digests(passed))]

    def _on_deadline(self, now: float) -> list[Effect]:
        """Begin a round, if it is time."""
        if self._due is None or now < self._due:
            return []
        self._due = None
        fixed = self._hood.fixed
        effects = self._tell_drawn() if fixed is None else self._tell_all(fixed)
        if self._news:
            self._due = now + self._hood.interval_s
        self.sent += len(effects)
        return effects

    def _tell_all(self, neighbours: Sequence[NodeId]) -> list[Effect]:
        """Send each neighbour every rumour it did not send us."""
        effects: list[Effect] = []
        some = dict(list(self._news.items())[:RUMOURS_MAX])
        for peer in (*neighbours, *self._draw_strays(neighbours)):
            fresh = [
                news.passed or self._passed_on(about, news)
                for about, news in some.items()
                if about != peer and peer not in news.told_by
            ]
            if fresh:
                effects.append(Send(peer, self._digests(fresh)))
        for about in some:
            del self._news[about]
        return effects

    def _draw_strays(self, neighbours: Sequence[NodeId]) -> list[NodeId]:
        """Draw some linked peers besides the neighbours."""
        if not self._hood.strays:
            return []
        others = [peer for peer in self._linked if peer not in neighbours]
        return self._rng.sample(others, min(self._hood.strays, len(others)))

    def _tell_drawn(self) -> list[Effect]:
        """Send the rumours with rounds left to a random draw of neighbours."""
        drawn = self._keep_audience() if self._is_large else self._draw()
        if not drawn:
            self._news.clear()
            return []
        if not self._news:
            return []
        fresh: list[Rumour] = []
        for about, news in list(self._news.items())[:RUMOURS_MAX]:
            fresh.append(news.passed or self._passed_on(about, news))
            news.left -= 1
            if news.left <= 0:
                del self._news[about]
        message = self._digests(fresh)
        return [Send(peer, message) for peer in drawn]

    def _digests(self, rumours: list[Rumour]) -> LoadDigests:
        """Return rumours with their signatures, if there are any."""
        signatures = [self._signatures.get(rumour.node, b"") for rumour in rumours]
        told = tuple(signatures) if any(signatures) else ()
        return LoadDigests(rumours=tuple(rumours), signatures=told)

    def _draw(self) -> list[NodeId]:
        """Draw distinct neighbours. Redrawing duplicates is faster than a sample."""
        pool, fan_out = self._hood.drawn_from, self._hood.fan_out
        everybody = list(self._linked) if pool is None else pool
        if len(everybody) <= fan_out:
            return [peer for peer in everybody if peer != self.node]
        drawn: dict[NodeId, None] = {}
        chance, count = self._rng.random, len(everybody)
        while len(drawn) < fan_out:
            peer = everybody[int(chance() * count)]
            if peer != self.node:
                drawn[peer] = None
        return list(drawn)

    def _keep_audience(self) -> list[NodeId]:
        """Return whom we tell in a large shoal; others only follow those that left."""
        linked, most = self._linked, self._hood.fan_out * self._hood.repeats
        self._audience = [peer for peer in self._audience if peer in linked]
        if (lacking := most - len(self._audience)) > 0:
            others = [peer for peer in linked if peer not in self._audience]
            self._audience += self._rng.sample(others, min(lacking, len(others)))
        return self._audience

    def _passed_on(self, about: NodeId, news: _News) -> Rumour:
        """Build the rumour as it is passed on; it is the same in every round."""
        rumour = self._known[about]
        passed = news.passed = _with_hops(rumour, self._hops_left(rumour))
        return passed

    def _hops_left(self, rumour: Rumour) -> int:
        """Return the hops that a rumour has left from here, within our own limit."""
        left = rumour.hops if self._hops is None else min(rumour.hops, self._hops)
        return left - 1

    def _forget(self, about: NodeId) -> None:
        if about != self.node:
            self._known.pop(about, None)
            self._signatures.pop(about, None)
            self._news.pop(about, None)

    def _on_size(self, nodes: int) -> None:
        hood = self._hood
        chooses = hood.fixed is None and hood.drawn_from is None
        self._is_large = chooses and nodes > hood.known_max
        self._hops = self._hops_for(nodes)
        for news in self._news.values():
            news.passed = None  # It may go less far, or further.

    def _hops_for(self, nodes: int) -> int:
        """Return how far a rumour may travel without overfilling its hearers."""
        hood = self._hood
        if nodes <= hood.known_max:
            return HOPS_MAX
        fixed = hood.fixed
        spread = hood.fan_out * hood.repeats if fixed is None else len(fixed) - 1
        hops, reached = 1, max(2, spread)
        while reached * max(2, spread) <= hood.known_max and hops < HOPS_MAX:
            hops += 1
            reached *= max(2, spread)
        return hops


def rumour_payload(rumour: Rumour) -> bytes:
    """Return the bytes of a rumour that its worker signs: everything but the hops."""
    return msgspec.msgpack.encode(("shoal-rumour-v1", _with_hops(rumour, 0)))


def _with_hops(rumour: Rumour, hops: int) -> Rumour:
    return Rumour(
        rumour.node,
        rumour.epoch,
        rumour.seq,
        hops,
        rumour.cpu_milli,
        rumour.memory_bytes,
        rumour.gpus,
        rumour.gpu_milli,
        rumour.gpu_memory_bytes,
        rumour.draining,
    )
