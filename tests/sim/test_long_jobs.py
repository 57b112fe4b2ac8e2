"""A job that gets on may lose workers for days; one that gets nowhere may not."""

from typing import Final

from tests.unit.core.builders import job

from shoal.core.events import JobSubmitted
from shoal.core.peer import Peer
from shoal.model.ids import JobId, NodeId, OwnerId, TaskId
from shoal.model.job import Retry
from shoal.model.resources import Capacity
from shoal.sim.agenda import Agenda
from shoal.sim.node import trust
from shoal.sim.node.assembly import assemble_peer
from shoal.sim.node.driver import Behaviour
from shoal.sim.node.host import HostWatch, NodeSpec
from shoal.sim.world import World

ANN: Final = NodeId("ann")
JOB, TASK = JobId("j"), TaskId("j.g.0")
KILLED: Final = 137
RETRY = Retry(3, ("worker-lost", f"exit:{KILLED}"))


def world_with(behaviour: Behaviour) -> World:
    world = World(1, Agenda(), assemble_peer, HostWatch())
    for node in map(NodeId, ("w0", "w1")):
        grant = trust.grant(node, ("worker",), OwnerId("lab"))
        capacity = Capacity(cpu_milli=1_000)
        world.add(NodeSpec(id=node, roles=("worker",), grant=grant, capacity=capacity))
    grant = trust.grant(ANN, ("scheduler",), OwnerId("ann"))
    world.add(NodeSpec(id=ANN, roles=("scheduler",), grant=grant))
    world.plans[TASK] = behaviour
    world.submit(ANN, JobSubmitted(1, job("j", retry=RETRY)))
    return world


def state_of(world: World) -> str:
    machine = world.hosts[ANN].machine
    assert isinstance(machine, Peer)
    assert machine.scheduler is not None
    return machine.scheduler.book.jobs[JOB].state


def lose_its_worker(world: World, after_s: float) -> None:
    """Cut the power of the machine that it runs on, some time after it began."""

    def where() -> NodeId | None:
        running = (h.id for h in world.hosts.values() if h.driver.processes)
        return next(running, None)

    while where() is None and state_of(world) == "active":
        world.run(world.now + 1.0)
    world.run(world.now + after_s)
    node = where()
    if node is not None:
        world.crash(node)
        world.run(world.now + 5.0)
        world.restart(node)


def test_what_saves_its_progress_may_fail_any_number_of_times() -> None:
    codes = (*[KILLED] * 12, 0)
    on_its_way = world_with(
        Behaviour(run_s=4.0, exit_codes=codes, talks=True, saves=len(codes))
    )
    going_nowhere = world_with(
        Behaviour(run_s=4.0, exit_codes=codes, talks=True, saves=1)
    )

    on_its_way.run(300.0)
    going_nowhere.run(300.0)

    assert state_of(on_its_way) == "done"
    assert state_of(going_nowhere) == "failed"


def test_only_workers_that_are_lost_soon_after_a_start_are_counted() -> None:
    lasting, deadly = (world_with(Behaviour(run_s=1_000.0)) for _ in range(2))

    for loss in range(9):
        lose_its_worker(lasting, 700.0 if loss % 3 == 2 else 20.0)
        lose_its_worker(deadly, 20.0)
    lasting.run(lasting.now + 1_200.0)

    assert state_of(lasting) == "done"
    assert state_of(deadly) == "failed"
