"""Simulate members that find each other by asking their neighbours.

Some worlds have a crowd of members that each know a gate or two, and nobody else. They
can dial only where they have learned an address. Gates and members crash and are cut
off; one gate may name nodes that do not exist. A crashed member knows its gates and
what its disk kept. The promises are in `promises`.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, Final, final

import msgspec

from shoal.core.discovery.events import (
    ExpectCompany,
    KeepMembers,
    LearnAddresses,
    NetworkOpened,
    ReachPeer,
)
from shoal.model.ids import NodeId, OwnerId, RequestId
from shoal.protocol.messages import PeerAddress, PeersKnown, Role
from shoal.sim.discovery.promises import NeighbourPromises
from shoal.sim.node import trust
from shoal.sim.node.host import NodeSpec, address_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from shoal.sim.checkers.violations import Violations
    from shoal.sim.node.host import SimHost
    from shoal.sim.world import World

WORLDS_SHARE: Final = 0.1  # share of worlds with such members
CROWD: Final = (4, 20)
WRITE_S: Final = (0.001, 0.05)
LIE_S: Final = 3.0  # between two lies of a gate
SWEEP_S: Final = 1.0


class NeighbourScript(msgspec.Struct, frozen=True, kw_only=True):
    """Members, whom they know at first, and what happens to them."""

    nodes: tuple[NodeSpec, ...]
    comes_s: dict[NodeId, float]
    crashes: tuple[tuple[float, NodeId, float], ...]  # time, node, duration
    cuts: tuple[tuple[float, tuple[NodeId, ...], float], ...]
    liar: NodeId | None  # a gate that names nobody real
    heal_s: float


def draw_neighbour_script(rng: Random, heal_s: float) -> NeighbourScript | None:
    """Draw members that must find each other; None if this world has none."""
    if rng.random() >= WORLDS_SHARE:
        return None
    count = rng.randint(*CROWD)
    gates = [NodeId(f"m{n}") for n in range(rng.choice((1, 1, 2)))]
    names = [*gates, *(NodeId(f"m{n}") for n in range(len(gates), count))]
    nodes = tuple(_member(rng, name, gates) for name in names)
    return NeighbourScript(
        nodes=nodes,
        comes_s={name: rng.uniform(0.0, heal_s / 2) for name in names[1:]},
        crashes=tuple(
            (rng.uniform(1.0, heal_s), rng.choice(names), rng.uniform(0.5, 15.0))
            for _ in range(rng.randint(0, 5))
        ),
        cuts=tuple(
            (
                rng.uniform(1.0, heal_s),
                tuple(rng.sample(names, rng.randint(1, count // 2))),
                rng.uniform(1.0, 20.0),
            )
            for _ in range(rng.randint(0, 2))
        ),
        liar=rng.choice(gates) if rng.random() < 0.3 else None,
        heal_s=heal_s,
    )


def _member(rng: Random, name: NodeId, gates: Sequence[NodeId]) -> NodeSpec:
    is_gate = name in gates
    roles: tuple[Role, ...] = ("gate",) if is_gate else ()
    known = gates if is_gate else rng.sample(gates, rng.randint(1, len(gates)))
    return NodeSpec(
        id=name,
        roles=roles,
        grant=trust.grant(name, ("worker", "gate"), OwnerId("ann")),
        gates=tuple(address_of(gate) for gate in known if gate != name),
        network=NetworkOpened(relays=is_gate),
    )


@final
class NeighbourTraffic:
    """The members of one world, and their addresses as seen by each other."""

    def __init__(
        self, script: NeighbourScript, world: World, violations: Violations
    ) -> None:
        self.promises = NeighbourPromises(violations, world.agenda)
        self._script = script
        self._world = world
        self._rng = world.stream("neighbours")
        self._learned: dict[tuple[NodeId, int], dict[NodeId, None]] = {}

    @property
    def performers(self) -> Mapping[type, Callable[[SimHost, Any], None]]:
        """The performer of each effect."""
        return {
            LearnAddresses: self._learn,
            ReachPeer: self._reach,
            KeepMembers: self._keep,
            ExpectCompany: _nothing_to_start,
        }

    @property
    def hosts(self) -> list[SimHost]:
        """The members."""
        return [self._world.hosts[spec.id] for spec in self._script.nodes]

    def schedule(self) -> None:
        """Add the members, and schedule the script."""
        world, agenda, script = self._world, self._world.agenda, self._script
        for spec in script.nodes:
            comes_s = script.comes_s.get(spec.id)
            world.add(spec, up=comes_s is None)
            if comes_s is not None:
                agenda.at(comes_s, world.restart, spec.id)
        for at_s, node, down_s in script.crashes:
            agenda.at(at_s, world.crash, node)
            agenda.at(at_s + down_s, world.restart, node)
        for at_s, nodes, lasts_s in script.cuts:
            inside = [host for host in self.hosts if host.id in nodes]
            outside = [host for host in self.hosts if host.id not in nodes]
            for act, when in (("cut", at_s), ("mend", at_s + lasts_s)):
                do = getattr(world.network, act)
                agenda.at(when, do, inside, outside)
                agenda.at(when, do, outside, inside)
        if script.liar is not None:
            agenda.after(LIE_S, self._lie, world.hosts[script.liar])
        agenda.after(SWEEP_S, self._sweep)

    def settle(self) -> None:
        """Run the healed world until the members are linked."""
        world, healed_s = self._world, self._script.heal_s
        while not world.agenda.stopped:
            if self.promises.check_linked(self.hosts, healed_s):
                return
            world.run(world.now + 1.0)

    def _sweep(self) -> None:
        self.promises.sweep(self.hosts)
        self._world.agenda.after(SWEEP_S, self._sweep)

    def _lie(self, gate: SimHost) -> None:
        """Name members that do not exist to all neighbours of a gate."""
        ghosts = tuple(
            PeerAddress(NodeId(f"ghost{n}"), (address_of(NodeId(f"ghost{n}")),))
            for n in range(self._rng.randint(1, 16))
        )
        lie = PeersKnown(request=RequestId("lie"), peers=ghosts)
        for peer in list(gate.links) if gate.up else ():
            self._world.network.send(gate, peer, lie)
        if self._world.now < self._script.heal_s:
            self._world.agenda.after(LIE_S, self._lie, gate)

    # Effects.

    def _learn(self, host: SimHost, effect: LearnAddresses) -> None:
        if address_of(effect.node) in effect.addresses:
            self._learned.setdefault((host.id, host.life), {})[effect.node] = None

    def _reach(self, host: SimHost, effect: ReachPeer) -> None:
        if effect.peer in self._learned.get((host.id, host.life), ()):
            self._world.network.reach(host, effect.peer)

    def _keep(self, host: SimHost, effect: KeepMembers) -> None:
        self.promises.kept(host, tuple(effect.met))
        delay_s = self._rng.uniform(*WRITE_S)
        self._world.agenda.after(delay_s, _kept, host, host.life, effect)


def _kept(host: SimHost, life: int, effect: KeepMembers) -> None:
    if host.up and host.life == life:
        host.met = effect.met


def _nothing_to_start(host: SimHost, effect: ExpectCompany) -> None:
    """Start nothing: a simulated node has no libp2p."""
