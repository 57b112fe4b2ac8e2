"""Whoever was away hears of every revocation, and the revoked get nothing."""

from typing import Final

import pytest

from shoal.core.events import JobSubmitted, MessageReceived
from shoal.core.peer import Peer
from shoal.model.ids import GroupId, JobId, NodeId, OwnerId, TaskId
from shoal.model.job import Group, Job, Task
from shoal.model.resources import Capacity
from shoal.sim.agenda import Agenda
from shoal.sim.node import trust
from shoal.sim.node.assembly import assemble_peer
from shoal.sim.node.driver import Behaviour
from shoal.sim.node.host import HostWatch, NodeSpec, SimHost
from shoal.sim.world import World

REVOKED: Final = 300
BOSS, AWAY = NodeId("boss"), NodeId("away")


def _world(seed: int) -> World:
    world = World(seed, Agenda(), assemble_peer, HostWatch())
    boss = trust.grant(BOSS, ("scheduler",), OwnerId("lab"))
    away = trust.grant(AWAY, ("worker",), OwnerId("lab"))
    room = Capacity(cpu_milli=1_000)
    world.add(NodeSpec(id=BOSS, roles=("scheduler",), grant=boss))
    world.add(NodeSpec(id=AWAY, roles=("worker",), grant=away, capacity=room))
    return world


def _job(world: World) -> Job:
    task = Task(id=TaskId("j.main.0"), job=JobId("j"), group=GroupId("j.main"))
    world.plans[task.id] = Behaviour(run_s=1.0)
    group = Group(id=GroupId("j.main"), tasks=(task,))
    return Job(id=JobId("j"), owner=OwnerId("lab"), groups=(group,))


def _known(host: SimHost) -> int:
    assert isinstance(host.machine, Peer)
    return len(host.machine._roster.revocations)


@pytest.mark.parametrize("seed", range(3))
def test_a_node_that_was_away_hears_of_three_hundred_revocations(seed: int) -> None:
    world = _world(seed)
    world.run(2.0)
    world.crash(AWAY)
    for n in range(REVOKED):
        revocation = trust.revocation(NodeId(f"x{n}"), serial=1)
        world.feed(BOSS, MessageReceived(trust.ROOT, revocation))
    world.run(4.0)
    assert _known(world.hosts[BOSS]) == REVOKED

    world.restart(AWAY)
    world.submit(BOSS, JobSubmitted(1, _job(world)))  # It looks for workers.
    world.run(20.0)

    assert _known(world.hosts[AWAY]) == REVOKED
