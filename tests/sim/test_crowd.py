"""Workers that come in a crowd are known with what they have, and with each change."""

from random import Random

import pytest

from shoal.core.lending.events import MachineMeasured
from shoal.core.peer import Peer
from shoal.model.ids import NodeId, OwnerId
from shoal.model.resources import GIB, Capacity
from shoal.sim.agenda import Agenda
from shoal.sim.node import trust
from shoal.sim.node.assembly import assemble_peer
from shoal.sim.node.host import HostWatch, NodeSpec
from shoal.sim.world import World

OWNER = OwnerId("ann")
SCHEDULERS = (NodeId("s0"), NodeId("s1"))
COMES_S = (2.0, 2.2)
KNOWN_S = 20.0


class Crowd:
    """Schedulers, and workers that all start within a moment and are then used."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(f"{seed}/crowd")
        self.world = World(seed, Agenda(), assemble_peer, HostWatch())
        self.workers = [NodeId(f"w{n}") for n in range(self.rng.randint(20, 60))]
        for node in SCHEDULERS:
            grant = trust.grant(node, ("scheduler",), OWNER)
            self.world.add(NodeSpec(id=node, roles=("scheduler",), grant=grant))
        for node in self.workers:
            grant = trust.grant(node, ("worker",), OWNER)
            room = Capacity(
                cpu_milli=1_000 * self.rng.randint(1, 64),
                memory_bytes=GIB * self.rng.randint(8, 512),
            )
            about = NodeSpec(id=node, roles=("worker",), grant=grant, capacity=room)
            self.world.add(about, up=False)
            self.world.agenda.at(self.rng.uniform(*COMES_S), self._come, node)

    def _come(self, node: NodeId) -> None:
        self.world.restart(node)
        for scheduler in SCHEDULERS:
            self.world.network.reach(self.world.hosts[node], scheduler)

    def use_all(self) -> None:
        """Let programs of all machines take memory at one moment."""
        for node, (_, memory_bytes) in self.real().items():
            taken = memory_bytes // self.rng.randint(2, 8)
            self.world.hosts[node].feed(MachineMeasured(memory_bytes=taken))

    def real(self) -> dict[NodeId, tuple[int, int]]:
        """Return what each worker has free."""
        found: dict[NodeId, tuple[int, int]] = {}
        for node in self.workers:
            machine = self.world.hosts[node].machine
            assert isinstance(machine, Peer)
            assert machine.worker is not None
            load = machine.worker.load
            found[node] = (load.cpu_milli, load.memory_bytes)
        return found

    def known(self, scheduler: NodeId) -> dict[NodeId, tuple[int, int]]:
        """Return what a scheduler believes that each worker has free."""
        machine = self.world.hosts[scheduler].machine
        assert isinstance(machine, Peer)
        assert machine.scheduler is not None
        table = machine.scheduler.views.table
        views = [table.view(node) for node in self.workers]
        return {
            view.node: (view.cpu_milli, view.memory_bytes)
            for view in views
            if view is not None
        }


@pytest.mark.parametrize("seed", range(4))
def test_all_of_a_crowd_are_known_and_so_is_all_that_changes_at_once(seed: int) -> None:
    crowd = Crowd(seed)

    crowd.world.run(KNOWN_S)
    before = crowd.real()
    assert [crowd.known(scheduler) for scheduler in SCHEDULERS] == [before, before]
    crowd.use_all()
    crowd.world.run(2 * KNOWN_S)

    after = crowd.real()
    assert all(after[node] != before[node] for node in crowd.workers)
    assert [crowd.known(scheduler) for scheduler in SCHEDULERS] == [after, after]
