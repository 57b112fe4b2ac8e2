"""Whatever crashes and whatever the clocks say, a time of a schedule starts one job."""

from typing import Final

import msgspec
import pytest
from tests.unit.core.builders import job

from shoal.core.durability.journal import Submitted
from shoal.core.events import CancelRequested, Effect, Event, JobSubmitted, Record
from shoal.core.peer import Peer
from shoal.model.ids import JobId, NodeId, OwnerId
from shoal.model.job import Schedule
from shoal.model.resources import Capacity
from shoal.sim.agenda import Agenda
from shoal.sim.node import trust
from shoal.sim.node.assembly import assemble_peer
from shoal.sim.node.driver import SimProcess
from shoal.sim.node.host import HostWatch, NodeSpec, SimHost
from shoal.sim.world import World

ANN: Final = NodeId("ann")
MINUTES: Final = 40
EVERY_MINUTE: Final = Schedule("* * * * *")


class Seen(HostWatch):
    """Remembers which jobs ran, and for which time of their schedule."""

    def __init__(self) -> None:
        super().__init__()
        self.due_of: dict[JobId, float] = {}
        self.ran: dict[float, set[JobId]] = {}

    def tap(self, _host: SimHost, _event: Event, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Record) and isinstance(effect.entry, Submitted):
                run = effect.entry.job.occurrence
                if run is not None:
                    self.due_of[effect.entry.job.id] = run.due_s

    def started(self, host: SimHost, process: SimProcess) -> None:
        """Take note that a process runs and holds its devices."""
        del host
        id_ = process.start.task.job
        self.ran.setdefault(self.due_of[id_], set()).add(id_)


def _world(seed: int, seen: Seen) -> World:
    world = World(seed, Agenda(), assemble_peer, seen, tap=seen.tap)
    for n in range(2):
        node = NodeId(f"w{n}")
        grant = trust.grant(node, ("worker",), OwnerId("lab"))
        room = Capacity(cpu_milli=2_000)
        world.add(NodeSpec(id=node, roles=("worker",), grant=grant, capacity=room))
    grant = trust.grant(ANN, ("scheduler",), OwnerId("ann"))
    world.add(NodeSpec(id=ANN, roles=("scheduler",), grant=grant))
    return world


def _jobs(world: World) -> list[JobId]:
    machine = world.hosts[ANN].machine
    assert isinstance(machine, Peer)
    assert machine.scheduler is not None
    return list(machine.scheduler.book.jobs)


@pytest.mark.parametrize("seed", range(6))
def test_each_minute_starts_one_job_at_most_and_most_of_them_one(seed: int) -> None:
    seen = Seen()
    world = _world(seed, seen)
    rng = world.stream("harm")
    made = msgspec.structs.replace(job("night"), schedule=EVERY_MINUTE)
    world.submit(ANN, JobSubmitted(1, made))
    world.run(1.0)

    down_s = 0.0
    while world.now < MINUTES * 60.0 - 300.0:
        world.run(world.now + rng.uniform(5.0, 200.0))
        if rng.random() < 0.3:
            world.hosts[ANN].set_wall(rng.uniform(-90.0, 90.0))
            continue
        world.crash(ANN, power=rng.random() < 0.5)
        rest_s = rng.uniform(0.0, 150.0)
        world.run(world.now + rest_s)
        down_s += rest_s
        world.restart(ANN)
    world.run(MINUTES * 60.0)
    world.hosts[ANN].set_wall(0.0)
    world.run(world.now + 300.0)

    assert all(len(jobs) == 1 for jobs in seen.ran.values())
    assert all(due_s % 60.0 == 0.0 for due_s in seen.ran)
    assert len({id_ for jobs in seen.ran.values() for id_ in jobs}) == len(seen.ran)
    assert len(seen.ran) >= MINUTES - down_s / 60.0 - 12

    before = len(seen.ran)
    world.submit(ANN, CancelRequested(2, JobId("night")))
    world.run(world.now + 30.0)
    world.crash(ANN)
    world.restart(ANN)
    world.run(world.now + 200.0)

    assert len(seen.ran) <= before + 1
    assert "night" in _jobs(world)
