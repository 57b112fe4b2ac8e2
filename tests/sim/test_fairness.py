"""No job starves: not behind its own scheduler's small tasks, nor behind another's."""

from typing import Final

import msgspec
import pytest

from shoal.core.events import JobSubmitted
from shoal.model.ids import GroupId, JobId, NodeId, OwnerId, TaskId
from shoal.model.job import Group, Job, Task
from shoal.model.resources import Capacity, Profile
from shoal.model.text.bounds import DURATION_MAX_S
from shoal.protocol.messages import AnyMessage, Demand
from shoal.sim.agenda import Agenda
from shoal.sim.node import trust
from shoal.sim.node.assembly import assemble_peer
from shoal.sim.node.driver import Behaviour
from shoal.sim.node.host import HostWatch, NodeSpec
from shoal.sim.world import World

WORKERS: Final = 8
ANN, BOB = NodeId("ann"), NodeId("bob")


def _world(seed: int) -> World:
    world = World(seed, Agenda(), assemble_peer, HostWatch())
    for n in range(WORKERS):
        node = NodeId(f"w{n}")
        world.add(
            NodeSpec(
                id=node,
                roles=("worker",),
                grant=trust.grant(node, ("worker",), OwnerId("lab")),
                capacity=Capacity(cpu_milli=1_000),
            )
        )
    for node in (ANN, BOB):
        grant = trust.grant(node, ("scheduler",), OwnerId(node))
        world.add(NodeSpec(id=node, roles=("scheduler",), grant=grant))
    return world


def _job(world: World, name: str, size: int, *, gang: bool, run_s: float) -> Job:
    group = GroupId(f"{name}.main")
    tasks = tuple(
        Task(
            id=TaskId(f"{group}.{n}"),
            job=JobId(name),
            group=group,
            index=n,
            size=size,
            profiles=(Profile(cpu_milli=1_000),),
        )
        for n in range(size)
    )
    world.plans.update({task.id: Behaviour(run_s=run_s) for task in tasks})
    groups = (Group(id=group, tasks=tasks, gang_min=size if gang else 0),)
    return Job(id=JobId(name), owner=OwnerId(name), groups=groups)


def _state(world: World, node: NodeId, job: str) -> str:
    scheduler = getattr(world.hosts[node].machine, "scheduler")  # noqa: B009
    return str(scheduler.book.jobs[JobId(job)].state)


@pytest.mark.parametrize("seed", range(5))
def test_a_gang_starts_though_another_scheduler_has_a_stream_of_small_tasks(
    seed: int,
) -> None:
    world = _world(seed)
    stream = _job(world, "stream", 2_000, gang=False, run_s=1.7)
    gang = _job(world, "gang", WORKERS, gang=True, run_s=1.0)
    world.submit(ANN, JobSubmitted(1, stream))
    world.run(5.0)
    world.submit(BOB, JobSubmitted(2, gang))

    world.run(60.0)

    assert _state(world, BOB, "gang") == "done"
    assert _state(world, ANN, "stream") == "active"


@pytest.mark.parametrize("seed", range(5))
def test_a_gang_starts_though_its_own_scheduler_has_a_stream_of_small_tasks(
    seed: int,
) -> None:
    world = _world(seed)
    stream = _job(world, "stream", 2_000, gang=False, run_s=1.7)
    gang = _job(world, "gang", WORKERS, gang=True, run_s=1.0)
    world.submit(ANN, JobSubmitted(1, gang))
    world.submit(ANN, JobSubmitted(2, stream))

    world.run(60.0)

    assert _state(world, ANN, "gang") == "done"
    assert _state(world, ANN, "stream") == "active"


@pytest.mark.parametrize("seed", range(5))
def test_a_single_task_gets_its_turn_though_another_scheduler_keeps_all_workers_busy(
    seed: int,
) -> None:
    world = _world(seed)
    stream = _job(world, "stream", 2_000, gang=False, run_s=1.7)
    single = _job(world, "single", 1, gang=False, run_s=1.0)
    world.submit(ANN, JobSubmitted(1, stream))
    world.run(5.0)
    world.submit(BOB, JobSubmitted(2, single))

    world.run(30.0)

    assert _state(world, BOB, "single") == "done"


def _boasting(message: AnyMessage) -> AnyMessage:
    """Let Ann say of every demand that it is ten years old."""
    if isinstance(message, Demand) and message.rank.node == ANN:
        rank = msgspec.structs.replace(message.rank, age_s=DURATION_MAX_S)
        return msgspec.structs.replace(message, rank=rank)
    return message


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("gang", [True, False])
def test_a_scheduler_that_lies_about_its_age_starves_nobody(
    seed: int, gang: bool
) -> None:
    world = _world(seed)
    world.network.transform = _boasting
    stream = _job(world, "stream", 2_000, gang=False, run_s=1.7)
    honest = _job(world, "honest", WORKERS, gang=gang, run_s=1.0)
    world.submit(ANN, JobSubmitted(1, stream))
    world.run(5.0)
    world.submit(BOB, JobSubmitted(2, honest))

    world.run(90.0)

    assert _state(world, BOB, "honest") == "done"
    assert _state(world, ANN, "stream") == "active"


@pytest.mark.parametrize("seed", range(3))
def test_gangs_of_two_schedulers_take_turns_though_one_lies_about_its_age(
    seed: int,
) -> None:
    world = _world(seed)
    world.network.transform = _boasting
    gangs = [_job(world, f"a{n}", WORKERS, gang=True, run_s=2.0) for n in range(40)]
    for n, gang in enumerate(gangs):
        world.submit(ANN, JobSubmitted(n + 1, gang))
    world.run(5.0)
    world.submit(BOB, JobSubmitted(99, _job(world, "b", 8, gang=True, run_s=2.0)))

    world.run(120.0)

    assert _state(world, BOB, "b") == "done"
