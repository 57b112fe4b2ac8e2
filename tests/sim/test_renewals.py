"""Grants that are short are renewed in time, and the revoked do not come back."""

from typing import Final

import pytest

from shoal.core.events import JobSubmitted, MessageReceived
from shoal.core.membership.members import TERM
from shoal.core.peer import Peer
from shoal.model.ids import GroupId, JobId, NodeId, OwnerId, TaskId
from shoal.model.job import Group, Job, Task
from shoal.model.resources import Capacity
from shoal.protocol.messages import Grant, Role
from shoal.sim.agenda import Agenda
from shoal.sim.node import trust
from shoal.sim.node.assembly import assemble_peer
from shoal.sim.node.driver import Behaviour
from shoal.sim.node.host import HostWatch, NodeSpec, SimHost
from shoal.sim.node.trust import WALL_AT_START_S
from shoal.sim.world import World

LIFE_S: Final = 300.0
ADMIN, BOSS, ANN, EVE = map(NodeId, ("admin", "boss", "ann", "eve"))
ROLES: Final[dict[NodeId, tuple[Role, ...]]] = {
    ADMIN: ("scheduler", "admin"),
    BOSS: ("scheduler",),
    ANN: ("worker",),
    EVE: ("worker",),
}


def _world(
    seed: int, *, holds_root: bool = True, admins_life_s: float = LIFE_S
) -> World:
    world = World(seed, Agenda(), assemble_peer, HostWatch())
    for node, roles in ROLES.items():
        life_s = admins_life_s if node == ADMIN else LIFE_S
        more: tuple[Role, ...] = () if holds_root or node != ADMIN else ("worker",)
        grant = trust.grant(
            node,
            roles + more,
            OwnerId("lab"),
            valid_for_s=life_s,
            serial=int(WALL_AT_START_S),
        )
        room = Capacity(cpu_milli=1_000) if "worker" in roles else None
        world.add(
            NodeSpec(
                id=node,
                roles=tuple(role for role in roles if role != "admin"),
                grant=grant,
                capacity=room,
                holds_root=holds_root and node == ADMIN,
                wall_skew_s={BOSS: 3.0, ANN: -3.0}.get(node, 0.0),
            )
        )
    return world


def _job(world: World, name: str) -> Job:
    tasks = tuple(
        Task(
            id=TaskId(f"{name}.main.{n}"),
            job=JobId(name),
            group=GroupId(f"{name}.main"),
        )
        for n in range(4)
    )
    for task in tasks:
        world.plans[task.id] = Behaviour(run_s=1.0)
    group = Group(id=GroupId(f"{name}.main"), tasks=tasks)
    return Job(id=JobId(name), owner=OwnerId("lab"), groups=(group,))


def _work(world: World, rounds: int, first: int = 0) -> None:
    """Have two schedulers use the workers, so that all of them are linked."""
    for n in range(first, first + rounds):
        for boss in (ADMIN, BOSS):
            world.submit(boss, JobSubmitted(n, _job(world, f"{boss}{n}")))
        world.run(n * 20.0 + 20.0)


def _grant(host: SimHost) -> Grant:
    assert host.grant is not None
    return host.grant


def _done(world: World, boss: NodeId) -> int:
    machine = world.hosts[boss].machine
    assert isinstance(machine, Peer)
    assert machine.scheduler is not None
    states = machine.scheduler.book.tasks.values()
    return sum(task.state == "done" for task in states)


@pytest.mark.parametrize("seed", range(5))
def test_nodes_work_on_though_every_grant_would_have_ended(seed: int) -> None:
    world = _world(seed)

    _work(world, 60)  # 20 minutes, four lives of a grant.

    for node in ROLES:
        grant = _grant(world.hosts[node])
        assert grant.expires_wall_s > WALL_AT_START_S + 1_200.0, node
        assert set(grant.roles) == set(ROLES[node])
    assert _done(world, BOSS) == _done(world, ADMIN) == 240


@pytest.mark.parametrize("seed", range(3))
def test_an_admin_without_the_root_renews_others_by_its_own_grant(seed: int) -> None:
    world = _world(seed, holds_root=False, admins_life_s=3_000.0)

    _work(world, 60)

    renewed = [_grant(world.hosts[node]) for node in (ANN, EVE)]
    assert all(grant.delegation is not None for grant in renewed)
    assert all(grant.expires_wall_s > WALL_AT_START_S + 1_200.0 for grant in renewed)
    assert _grant(world.hosts[ADMIN]).serial == int(WALL_AT_START_S)


@pytest.mark.parametrize("seed", range(3))
def test_who_is_revoked_gets_no_new_grant(seed: int) -> None:
    world = _world(seed)
    _work(world, 5)
    before = _grant(world.hosts[EVE])

    revocation = trust.revocation(EVE, serial=TERM - 1)
    world.feed(ADMIN, MessageReceived(trust.ROOT, revocation))
    _work(world, 40, first=5)

    assert _grant(world.hosts[EVE]) == before
    assert _grant(world.hosts[ANN]).expires_wall_s > WALL_AT_START_S + 900.0
    for node in (ADMIN, BOSS):
        machine = world.hosts[node].machine
        assert isinstance(machine, Peer)
        assert machine._roster.get(EVE, world.hosts[node].clock()) is None


@pytest.mark.parametrize("seed", range(3))
def test_a_new_grant_outlives_a_crash(seed: int) -> None:
    world = _world(seed)
    _work(world, 15)
    world.crash(ANN)
    world.restart(ANN)
    world.leave(EVE)  # So the other one is needed, and linked.

    _work(world, 45, first=15)

    assert _grant(world.hosts[ANN]).expires_wall_s > WALL_AT_START_S + 1_200.0
    assert _done(world, BOSS) == 240


def test_without_an_admin_a_node_says_what_is_wrong() -> None:
    world = _world(1)
    world.run(2.0)
    world.crash(ADMIN)
    world.submit(BOSS, JobSubmitted(1, _job(world, "j")))

    world.run(280.0)

    machine = world.hosts[ANN].machine
    assert isinstance(machine, Peer)
    assert machine.membership.renewal.trouble == "boss says: this node is no admin"
