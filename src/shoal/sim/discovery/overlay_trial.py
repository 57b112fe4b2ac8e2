"""The world of one seed: members that pass on by an overlay what workers say of load.

Five to fourteen workers at two sites measure their links. In some worlds all are linked
to all, in others only to some. They crash and come back; one may claim links that it
does not have, and pass nothing on. In the end each worker has news, several times, and
all must hear it (O1), with few messages (O2).
"""

from __future__ import annotations

from itertools import combinations, pairwise
from random import Random
from typing import Final, final

import msgspec

from shoal.core.discovery.gossip_overlay import REWIRE_S, STRAYS, mark_of
from shoal.core.discovery.load_gossip import LoadGossip
from shoal.core.events import (
    DrainEnded,
    DrainRequested,
    Effect,
    Event,
    PathMeasured,
    Send,
)
from shoal.core.machine import Decider
from shoal.core.peer import Peer
from shoal.model.ids import NodeId, OwnerId
from shoal.model.kinds import Overlay
from shoal.model.resources import Capacity
from shoal.protocol.messages import LoadDigests, Neighbourhood
from shoal.sim.agenda import Agenda
from shoal.sim.checkers.violations import Violation, Violations
from shoal.sim.node import trust
from shoal.sim.node.assembly import assemble_peer, compact_journal
from shoal.sim.node.host import HostWatch, NodeLife, NodeSpec, SimHost
from shoal.sim.world import World

OWNER: Final = OwnerId("ann")
MEMBERS: Final = (5, 14)
NEAR_US: Final = 600
FAR_US: Final = (9_000, 80_000)
NOISE: Final = 1.3
MEASURE_S: Final = 3.0
HEAL_S: Final = 25.0
SETTLED_S: Final = HEAL_S + 5 * REWIRE_S
NEWS: Final = 8  # of each worker, one after the other
NEWS_S: Final = 3.0
HEARD_S: Final = 20.0
"""After the last news all have heard it: some rounds for each node on the way."""


class OverlayScript(msgspec.Struct, frozen=True, kw_only=True):
    """Members, their links, and what happens to them."""

    overlays: dict[NodeId, Overlay]
    links: tuple[tuple[NodeId, NodeId], ...]
    far_us: int
    liar: NodeId | None  # who claims to be linked to all
    silent: bool  # whether the liar passes nothing on, where others go around it
    crashes: tuple[tuple[float, NodeId, float], ...]  # time, node, duration
    late: NodeId | None  # who is away while there is news, and comes back after it


def draw_overlay_script(seed: int) -> OverlayScript:
    """Draw members and their fate."""
    rng = Random(f"{seed}/overlay")
    names = [NodeId(f"o{n}") for n in range(rng.randint(*MEMBERS))]
    kinds: tuple[Overlay, ...] = ("mst", "mst", "nearest", "flood")
    kind = rng.choice(kinds)
    is_mixed = rng.random() < 0.2
    links = list(combinations(names, 2))
    if rng.random() < 0.5:  # A path through all of them, and some more.
        path = list(pairwise(names))
        links = [*path, *(pair for pair in links[1:] if rng.random() < 0.35)]
    is_full = len(links) == len(names) * (len(names) - 1) // 2
    liar = rng.choice(names) if rng.random() < 0.3 else None
    return OverlayScript(
        overlays={n: rng.choice(kinds) if is_mixed else kind for n in names},
        links=tuple(dict.fromkeys(links)),
        far_us=rng.randint(*FAR_US),
        liar=liar,
        silent=liar is not None and is_full,
        crashes=tuple(
            (rng.uniform(1.0, HEAL_S / 2), rng.choice(names), rng.uniform(0.5, 12.0))
            for _ in range(rng.randint(0, 3))
        ),
        late=rng.choice(names) if liar is None and rng.random() < 0.3 else None,
    )


@final
class LyingMember:
    """Claims to be near to everybody, and may pass on nothing of what it hears."""

    def __init__(self, peer: Peer, names: tuple[NodeId, ...], *, silent: bool) -> None:
        self._peer = peer
        self._silent = silent
        marks = tuple((mark_of(name), 0) for name in names)
        self._claim = Neighbourhood(links=marks)

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Do as others do, but for what is said of load and of links."""
        effects: list[Effect] = []
        for effect in self._peer.handle(event, now):
            said = effect.message if isinstance(effect, Send) else None
            if isinstance(effect, Send) and isinstance(said, Neighbourhood):
                effects.append(Send(effect.peer, self._claim))
            elif not (self._silent and isinstance(said, LoadDigests)):
                effects.append(effect)
        return effects

    def next_deadline(self) -> float | None:
        """When to deliver `DeadlineReached`, if ever."""
        return self._peer.next_deadline()


@final
class OverlayTrial:
    """The world of one seed, and its promises."""

    def __init__(self, seed: int, script: OverlayScript | None = None) -> None:
        """Prepare the world; nothing happens before `run`."""
        self.script = script = script or draw_overlay_script(seed)
        self.agenda = agenda = Agenda()
        self.violations = Violations(agenda)
        self.told_of_each = 0.0  # how often a piece of news was told, after `run`
        self._told = 0  # rumours in messages, since the count began
        watch = HostWatch()
        watch.sent[LoadDigests] = self._on_sent
        self.world = World(seed, agenda, self._assemble, watch)
        self.world.scene.compact = compact_journal
        self._rng = self.world.stream("measuring")

    def run(self) -> tuple[Violation, ...]:
        """Run the world through its faults, then check that all hear the news."""
        return self.violations.found_in(self._run)

    def _run(self) -> None:
        world, script = self.world, self.script
        for name, overlay in script.overlays.items():
            grant = trust.grant(name, ("worker",), OWNER)
            world.add(
                NodeSpec(
                    id=name,
                    roles=("worker",),
                    owner=OWNER,
                    grant=grant,
                    capacity=Capacity(cpu_milli=1_000),
                    overlay=overlay,
                )
            )
        for one, other in script.links:
            here, there = world.hosts[one], world.hosts[other]
            world.network.set_latency(here, there, self._rtt_us(one, other) / 2e6)
        for at_s, node, down_s in script.crashes:
            world.agenda.at(at_s, world.crash, node)
            world.agenda.at(at_s + down_s, world.restart, node)
        world.agenda.after(MEASURE_S, self._measure)
        world.run(SETTLED_S)
        if script.late is not None:
            world.crash(script.late)
        self._told = 0
        for number in range(NEWS):
            event = DrainEnded() if number % 2 else DrainRequested(grace_s=1.0)
            for host in self._honest():
                host.feed(event)
            world.run(world.now + NEWS_S)
        news = NEWS * len(self._honest())
        self.told_of_each = self._told / news

        if script.late is not None:
            world.restart(script.late)
        world.run(world.now + HEARD_S)
        if not world.agenda.stopped:
            self._check_heard()
            self._check_messages()

    def _check_heard(self) -> None:
        """O1: who is linked to others by any path hears the last word of each worker.

        Where one is silent, the last but a few: who has only that one for a neighbour
        hears but what strays.
        """
        slack = NEWS - 2 if self.script.silent else 0
        hosts = self._honest()
        last = {host.id: _known(host)[host.id] for host in hosts}
        for host in hosts:
            for worker, (epoch, seq) in last.items():
                heard = _known(host).get(worker)
                if heard is None or heard[0] < epoch or heard[1] < seq - slack:
                    what = f"{host.id} knows {heard} of {worker}, not {(epoch, seq)}"
                    self.violations.report("O1", what)
                    return

    def _check_messages(self) -> None:
        """O2: a tree tells each piece of news to each member a few times at most."""
        script = self.script
        is_tree = set(script.overlays.values()) == {"mst"} and script.liar is None
        members, told = len(script.overlays), self.told_of_each
        most = (2 + STRAYS) * members
        if is_tree and script.late is None and told > most:
            what = f"a piece of news is told {told:.1f} times to {members} members"
            self.violations.report("O2", what)

    def _honest(self) -> list[SimHost]:
        hosts = [host for host in self.world.hosts.values() if host.up]
        return [host for host in hosts if host.id != self.script.liar]

    def _rtt_us(self, one: NodeId, other: NodeId) -> int:
        names = list(self.script.overlays)
        is_near = names.index(one) % 2 == names.index(other) % 2
        return NEAR_US if is_near else self.script.far_us

    def _on_sent(self, _host: SimHost, _peer: NodeId, message: object) -> None:
        assert isinstance(message, LoadDigests)
        self._told += len(message.rumours)

    def _assemble(self, life: NodeLife) -> Decider:
        peer = assemble_peer(life)
        if life.spec.id != self.script.liar:
            return peer
        names = tuple(self.script.overlays)
        return LyingMember(peer, names, silent=self.script.silent)

    def _measure(self) -> None:
        """Let both ends of each link measure it, or make it."""
        network = self.world.network
        for pair in self.script.links:
            for one, other in (pair, pair[::-1]):
                host = self.world.hosts[one]
                if not host.up:
                    continue
                if other not in host.links:
                    network.reach(host, other)
                    continue
                rtt_us = self._rtt_us(one, other) * self._rng.uniform(1.0, NOISE)
                host.feed(PathMeasured(other, rtt_us / 1e6))
        self.world.agenda.after(MEASURE_S, self._measure)


def _known(host: SimHost) -> dict[NodeId, tuple[int, int]]:
    """Return the latest word of each worker that a member has heard."""
    assert isinstance(host.machine, Peer)
    gossip = host.machine.gossip
    assert isinstance(gossip, LoadGossip)
    return {node: (rumour.epoch, rumour.seq) for node, rumour in gossip.known.items()}
