"""Simulate members of two places that measure the network between them.

Some worlds have members whose links measure round trips, as live ones do. Fewer than a
quarter of them say that they are somewhere else; a forger who is a member is one of
these, for it repeats the positions of others as its own. One may ask for probes without
end. They crash and come back. The promises are in `promises`.
"""

from __future__ import annotations

from itertools import combinations
from random import Random
from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.core.events import PathMeasured
from shoal.core.peer import Peer
from shoal.core.proximity.proximity import Proximity
from shoal.model.ids import NodeId, OwnerId
from shoal.protocol.limits import PROBE_BYTES_MAX
from shoal.protocol.proximity.messages import Position, ProbeWanted
from shoal.sim.node import trust
from shoal.sim.node.host import NodeSpec
from shoal.sim.proximity.promises import ProximityPromises

if TYPE_CHECKING:
    from shoal.sim.checkers.violations import Violations
    from shoal.sim.node.host import SimHost
    from shoal.sim.world import World

WORLDS_SHARE: Final = 0.06  # share of worlds with such members
MEMBERS: Final = (6, 10)
NEAR_US: Final = 600
FAR_US: Final = (20_000, 80_000)
NOISE: Final = 1.3
MEASURE_S: Final = 1.0
SETTLE_S: Final = 60.0
LIARS_SHARE: Final = 5  # one liar among so many, at most, the forger included
GREED: Final = 20  # questions of a greedy member at a time


class ProximityScript(msgspec.Struct, frozen=True, kw_only=True):
    """Members, where they are, and who lies."""

    places: dict[NodeId, int]
    far_us: int
    lies: dict[NodeId, Position]
    greedy: NodeId | None
    crashes: tuple[tuple[float, NodeId, float], ...]  # time, node, duration


def draw_proximity_script(
    rng: Random, heal_s: float, *, forgers: int
) -> ProximityScript | None:
    """Draw members that measure each other; None if this world has none.

    Besides them, the world has so many `forgers` that are members.
    """
    if rng.random() >= WORLDS_SHARE:
        return None
    names = [NodeId(f"x{n}") for n in range(rng.randint(*MEMBERS))]
    most = (len(names) + forgers) // LIARS_SHARE - forgers
    liars = rng.sample(names, rng.randint(0, most))
    return ProximityScript(
        places={name: index % 2 for index, name in enumerate(names)},
        far_us=rng.randint(*FAR_US),
        lies={name: _lie(rng) for name in liars},
        greedy=rng.choice(names) if rng.random() < 0.5 else None,
        crashes=tuple(
            (rng.uniform(1.0, heal_s), rng.choice(names), rng.uniform(0.5, 15.0))
            for _ in range(rng.randint(0, 3))
        ),
    )


def _lie(rng: Random) -> Position:
    x_us, y_us, z_us = (rng.randint(-200_000, 200_000) for _ in range(3))
    return Position(x_us=x_us, y_us=y_us, z_us=z_us, error_milli=0, uplink=20)


@final
class ProximityTraffic:
    """The members of one world, and the round trips between them."""

    def __init__(
        self, script: ProximityScript, world: World, violations: Violations
    ) -> None:
        greedy = () if script.greedy is None else (script.greedy,)
        self.promises = ProximityPromises(violations, greedy)
        self._script = script
        self._world = world
        self._rng = world.stream("proximity")
        self._rtts_us = {
            frozenset(pair): self._rtt_us(*pair)
            for pair in combinations(script.places, 2)
        }

    def schedule(self) -> None:
        """Add the members, and schedule the script."""
        world = self._world
        for name in self._script.places:
            grant = trust.grant(name, ("worker", "gate"), OwnerId("ann"))
            world.add(NodeSpec(id=name, roles=(), grant=grant))
        for one, other in combinations(self._hosts(), 2):
            rtt_us = self._rtts_us[frozenset((one.id, other.id))]
            world.network.set_latency(one, other, rtt_us / 2e6)
        for at_s, node, down_s in self._script.crashes:
            world.agenda.at(at_s, world.crash, node)
            world.agenda.at(at_s + down_s, world.restart, node)
        world.agenda.after(MEASURE_S, self._measure)

    def settle(self) -> None:
        """Let honest members agree, and check that they do."""
        self._world.run(self._world.now + SETTLE_S)
        if self._world.agenda.stopped:
            return
        honest = [host for host in self._hosts() if host.id not in self._script.lies]
        found = {host.id: _proximity(host) for host in honest}
        self.promises.check_places(found, self._rtts_us)

    def _hosts(self) -> list[SimHost]:
        return [self._world.hosts[name] for name in self._script.places]

    def _rtt_us(self, one: NodeId, other: NodeId) -> int:
        places = self._script.places
        return NEAR_US if places[one] == places[other] else self._script.far_us

    def _measure(self) -> None:
        """Let each pair that is linked measure its link, and others make one."""
        script, network = self._script, self._world.network
        for host in self._hosts():
            for peer in script.places if host.up else ():
                if peer == host.id:
                    continue
                network.reach(host, peer)
                if peer not in host.links:
                    continue
                rtt_us = self._rtts_us[frozenset((host.id, peer))]
                rtt_s = rtt_us * self._rng.uniform(1.0, NOISE) / 1e6
                host.feed(PathMeasured(peer, rtt_s))
                if (lie := script.lies.get(host.id)) is not None and host.up:
                    network.send(host, peer, lie)
                if host.id == script.greedy and host.up:
                    for number in range(GREED):
                        wanted = ProbeWanted(probe=number, size=PROBE_BYTES_MAX)
                        network.send(host, peer, wanted)
        self._world.agenda.after(MEASURE_S, self._measure)


def _proximity(host: SimHost) -> Proximity:
    assert isinstance(host.machine, Peer)
    found = host.machine.find(Proximity)
    assert found is not None
    return found
