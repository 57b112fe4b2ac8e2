"""A shoal sends a task where its code is already, if that costs nothing else."""

from typing import Final

import msgspec
import pytest
from tests.unit.core.builders import job

from shoal.core.events import JobSubmitted
from shoal.core.peer import Peer
from shoal.model.caches import TREE
from shoal.model.ids import JobId, NodeId, OwnerId, TaskId
from shoal.model.job import Job, Work
from shoal.model.resources import Capacity
from shoal.protocol.messages import Role
from shoal.sim.agenda import Agenda
from shoal.sim.node import trust
from shoal.sim.node.assembly import assemble_peer
from shoal.sim.node.blobs import pack_tree
from shoal.sim.node.driver import Behaviour, SimProcess
from shoal.sim.node.host import HostWatch, NodeSpec, SimHost
from shoal.sim.world import World

WORKERS: Final = 8
ANN: Final = NodeId("ann")
CODE: Final = [pack_tree(salt, [salt]) for salt in (b"x", b"y")]
X, Y = [f"{TREE}{tree.name}" for tree in CODE]
replace = msgspec.structs.replace


class Seen(HostWatch):
    """Remembers where each job ran."""

    def __init__(self) -> None:
        super().__init__()
        self.where: dict[JobId, list[NodeId]] = {}

    def started(self, host: SimHost, process: SimProcess) -> None:
        """Take note that a process runs and holds its devices."""
        self.where.setdefault(process.start.task.job, []).append(host.id)


def _world(seed: int, seen: Seen) -> World:
    world = World(seed, Agenda(), assemble_peer, seen)
    for n in range(WORKERS):
        node = NodeId(f"w{n}")
        grant = trust.grant(node, ("worker",), OwnerId("lab"))
        capacity = Capacity(cpu_milli=1_000)
        roles: tuple[Role, ...] = ("worker",)
        world.add(NodeSpec(id=node, roles=roles, grant=grant, capacity=capacity))
    grant = trust.grant(ANN, ("scheduler",), OwnerId("ann"))
    ann = world.add(NodeSpec(id=ANN, roles=("scheduler",), grant=grant))
    for tree in CODE:
        ann.blobs.keep(tree)
    return world


def _job(name: str, workdir: str = "", size: int = 1, gang_min: int = 0) -> Job:
    made = job(name, groups={"g": (size, ())}, gang_min=gang_min)
    [group] = made.groups
    work = Work(workdir=workdir)
    tasks = tuple(replace(task, work=work) for task in group.tasks)
    return replace(made, groups=(replace(group, tasks=tasks),))


def _fill(world: World, name: str, run_s: float) -> None:
    """Let every worker know the scheduler: one task of no code for each slot."""
    filler = _job(name, size=WORKERS)
    world.plans.update(
        {task.id: Behaviour(run_s=run_s) for task in filler.groups[0].tasks}
    )
    world.submit(ANN, JobSubmitted(1, filler))


@pytest.mark.parametrize("seed", range(8))
def test_the_same_code_goes_to_the_same_worker_and_other_code_elsewhere(
    seed: int,
) -> None:
    seen = Seen()
    world = _world(seed, seen)
    _fill(world, "filler", 5.0)
    world.run(60.0)  # Until its leases are given back.
    for number, tree in enumerate((X, Y)):
        world.submit(ANN, JobSubmitted(2 + number, _job(f"first{number}", tree)))
    world.run(120.0)
    homes = [seen.where[JobId(f"first{number}")] for number in range(2)]

    for number, tree in enumerate((Y, X)):
        world.submit(ANN, JobSubmitted(4 + number, _job(f"second{number}", tree)))
        world.run(180.0 + 60.0 * number)

    assert homes[0] != homes[1]
    assert seen.where[JobId("second0")] == homes[1]
    assert seen.where[JobId("second1")] == homes[0]


@pytest.mark.parametrize("seed", range(8))
def test_a_gang_goes_where_its_code_is(seed: int) -> None:
    seen = Seen()
    world = _world(seed, seen)
    _fill(world, "filler", 5.0)
    world.run(60.0)
    for number, tree in enumerate((X, Y)):  # At the same time.
        gang = _job(f"first{number}", tree, size=3, gang_min=3)
        world.plans.update({t.id: Behaviour(run_s=9.0) for t in gang.groups[0].tasks})
        world.submit(ANN, JobSubmitted(2 + number, gang))
    world.run(120.0)
    homes = [set(seen.where[JobId(f"first{number}")]) for number in range(2)]

    for number, tree in enumerate((Y, X)):
        gang = _job(f"second{number}", tree, size=3, gang_min=3)
        world.submit(ANN, JobSubmitted(4 + number, gang))
        world.run(180.0 + 60.0 * number)

    assert not homes[0] & homes[1]
    assert set(seen.where[JobId("second0")]) == homes[1]
    assert set(seen.where[JobId("second1")]) == homes[0]


def test_a_scheduler_knows_who_has_the_code() -> None:
    seen = Seen()
    world = _world(1, seen)
    world.plans[TaskId("j.g.0")] = Behaviour(run_s=1.0)
    world.submit(ANN, JobSubmitted(1, _job("j", X)))

    world.run(30.0)

    machine = world.hosts[ANN].machine
    assert isinstance(machine, Peer)
    assert machine.scheduler is not None
    table = machine.scheduler.views.table
    [home] = seen.where[JobId("j")]
    views = [table.view(node) for node in table.nodes()]
    assert [view.node for view in views if view and view.warm] == [home]
