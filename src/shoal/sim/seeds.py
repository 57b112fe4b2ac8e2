"""One seed, one world: its nodes, its jobs, its faults, and what came of it."""

from __future__ import annotations

import traceback
from collections import deque
from random import Random
from typing import Final, final

import msgspec

from shoal.core.events import CancelRequested, JobSubmitted, MessageReceived
from shoal.core.membership import serial_for_revocation
from shoal.model.ids import NodeId
from shoal.model.resources import Capacity
from shoal.protocol import codec
from shoal.protocol.messages import AnyMessage, Role
from shoal.sim import trust
from shoal.sim.agenda import Agenda
from shoal.sim.assembly import PeerOpinions, assemble_peer, compact_journal
from shoal.sim.checkers.ending import Ending
from shoal.sim.checkers.suite import Suite
from shoal.sim.checkers.violations import Violation
from shoal.sim.clients import Clients
from shoal.sim.faults import DRIFT, Cast, Plan, draw_plan, with_wrong_clock
from shoal.sim.forger import (
    FORGER,
    KINDS,
    OVERHEARD_MAX,
    Forger,
    Kind,
    forged_grant,
)
from shoal.sim.host import Life, Machine, NodeSpec, Tap
from shoal.sim.workload import (
    OWNERS,
    Errand,
    Workload,
    draw_capacity,
    draw_workload,
)
from shoal.sim.world import World

SPAN_S: Final = (20.0, 90.0)  # how long faults last
ENCODED_SHARE: Final = 0.1  # of worlds really encode every message
FORGER_SHARE: Final = 0.3  # of worlds have a hostile node
POISON_SHARE: Final = 0.1
QUOTA_CPU_MILLI: Final = 4_000  # of some schedulers; no job needs more at a time
REVOKED_AT_S: Final = 1.0


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one seed."""

    seed: int
    violations: tuple[Violation, ...]
    events: int
    virtual_s: float
    jobs: int
    digest: str

    @property
    def replay(self) -> str:
        """The one command that shows what happened."""
        return f"python -m shoal.sim.replay {self.seed} --verbose"


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """All that the seed decides before the world begins."""

    nodes: tuple[NodeSpec, ...]
    joins_s: dict[NodeId, float]  # when some workers join; the others are there
    workload: Workload
    plan: Plan
    forger: Kind | None
    encoded: bool


def draw_script(seed: int) -> Script:
    """Draw nodes, jobs and faults."""
    rng = Random(f"{seed}/script")
    span_s = rng.uniform(*SPAN_S)
    nodes = _draw_nodes(rng)
    schedulers = [node.id for node in nodes if "scheduler" in node.roles]
    workers = [node.id for node in nodes if "worker" in node.roles]
    only_workers = [node for node in workers if node not in schedulers]
    leaving = None
    if len(workers) > 2 and only_workers and rng.random() < 0.2:
        leaving = rng.choice(only_workers)
    staying = [
        node.capacity
        for node in nodes
        if isinstance(node.capacity, Capacity) and node.id != leaving
    ]
    cast = Cast(schedulers=tuple(schedulers), workers=tuple(workers), leaving=leaving)
    poison = rng.random() < POISON_SHARE
    return Script(
        nodes=tuple(nodes),
        joins_s={
            node: rng.uniform(1.0, span_s)
            for node in only_workers
            if node != leaving and rng.random() < 0.1
        },
        workload=draw_workload(rng, schedulers, staying, span_s, poison),
        plan=with_wrong_clock(
            Random(f"{seed}/clock"), cast, draw_plan(rng, cast, span_s)
        ),
        forger=rng.choice(KINDS) if rng.random() < FORGER_SHARE else None,
        encoded=rng.random() < ENCODED_SHARE,
    )


def _draw_nodes(rng: Random) -> list[NodeSpec]:
    """Draw schedulers and workers; some nodes are both."""
    schedulers = rng.choice((1, 1, 2, 2, 3, 4))
    workers = rng.randint(2, 12)
    both = rng.randint(0, min(schedulers, workers)) if rng.random() < 0.5 else 0
    nodes: list[NodeSpec] = []
    for number in range(schedulers):
        roles: tuple[Role, ...] = ("scheduler",)
        if number < both:
            roles = ("scheduler", "worker", "gate")
        nodes.append(_draw_node(rng, NodeId(f"s{number}"), roles))
    nodes += [
        _draw_node(rng, NodeId(f"w{number}"), ("worker",))
        for number in range(workers - both)
    ]
    return nodes


def _draw_node(rng: Random, id_: NodeId, roles: tuple[Role, ...]) -> NodeSpec:
    owner = rng.choice(OWNERS)
    return NodeSpec(
        id=id_,
        roles=roles,
        owner=owner,
        grant=trust.grant(
            id_,
            roles,
            owner,
            quota_cpu_milli=QUOTA_CPU_MILLI if rng.random() < 0.1 else None,
        ),
        capacity=draw_capacity(rng) if "worker" in roles else None,
        clock_rate=1.0 + rng.uniform(-DRIFT, DRIFT),
        wall_skew_s=rng.uniform(-1.0, 1.0),
    )


@final
class Trial:
    """The world of one seed, with its clients and checkers."""

    def __init__(
        self, seed: int, script: Script | None = None, tap: Tap | None = None
    ) -> None:
        """Prepare the world of `script`, or of the one that the seed gives."""
        self.seed = seed
        self.script = script = script or draw_script(seed)
        agenda = Agenda()
        jobs = {errand.job.id: errand.job for errand in script.workload.errands}
        self._opinions = PeerOpinions()
        self.suite = Suite(agenda, jobs, self._opinions)
        self.world = World(
            seed,
            agenda,
            self._assemble,
            self.suite,
            transform=through_bytes if script.encoded else None,
            tap=tap,
        )
        self.world.scene.compact = compact_journal
        self.clients = self.suite.clients = Clients(agenda, self._submit)
        self.suite.hosts = self.world.hosts
        self.traceback = ""  # of what a machine raised, if one did

    def run(self) -> Outcome:
        """Run the world through its faults, heal it, and run it to its end."""
        try:
            self._run()
        except Exception as error:  # noqa: BLE001 - A machine never raises.
            self.traceback = traceback.format_exc()
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{place.filename.rpartition('/')[2]}:{place.lineno}"
            what = f"{type(error).__name__} in {where} {place.line}"
            self.suite.violations.report("RAISED", what)
        return Outcome(
            seed=self.seed,
            violations=tuple(self.suite.violations.found),
            events=self.world.events,
            virtual_s=self.world.now,
            jobs=len(self.clients.orders),
            digest=self.world.history.digest(),
        )

    def _run(self) -> None:
        world, plan = self.world, self.script.plan
        world.plans.update(self.script.workload.plans)
        if self.script.forger is not None:
            self._add_forger(self.script.forger)
        for spec in self.script.nodes:
            joins_s = self.script.joins_s.get(spec.id)
            world.add(spec, up=joins_s is None)
            if joins_s is not None:
                world.agenda.at(joins_s, world.restart, spec.id)
        for errand in self.script.workload.errands:
            self.clients.go(errand)
        plan.schedule(world)
        world.run(plan.heal_s)
        if self.script.forger is not None:
            self.suite.strangers.sweep(list(world.hosts.values()))
        for host in world.hosts.values():
            if isinstance(host.machine, Forger):
                host.machine.tame()
        violations = self.suite.violations
        ending = Ending(
            world, self.clients, self.suite.journals, violations, self._opinions
        )
        ending.run(plan.heal_s)

    def _add_forger(self, kind: Kind) -> None:
        victim = self.script.nodes[0].grant
        shown = forged_grant(kind, victim)
        self.world.network.overheard = deque(maxlen=OVERHEARD_MAX)
        self.world.directory.strangers.append(FORGER)
        if kind != "member":
            self.suite.suspect(FORGER, revoked=kind == "revoked")
        self.world.add(NodeSpec(id=FORGER, roles=(), grant=shown))
        if kind == "revoked":
            self.world.agenda.at(REVOKED_AT_S, self._revoke)

    def _revoke(self) -> None:
        """Let the root tell one node that the forger's grant is void."""
        first = self.script.nodes[0].id
        message = trust.revocation(FORGER, serial=serial_for_revocation(-1))
        self.world.feed(first, MessageReceived(trust.ROOT, message))

    def _assemble(self, life: Life) -> Machine:
        if life.spec.id != FORGER:
            return assemble_peer(life)
        overheard = self.world.network.overheard
        assert overheard is not None
        return Forger(life.spec.grant, overheard, life.rng)

    def _submit(self, errand: Errand, request: JobSubmitted | CancelRequested) -> bool:
        return self.world.feed(errand.scheduler, request)


def run_seed(seed: int) -> Outcome:
    """Run the world of one seed from its beginning to its end."""
    return Trial(seed).run()


def through_bytes(message: AnyMessage) -> AnyMessage:
    """Encode a message and decode it again, as a real network would."""
    [frame] = codec.encode([message])
    [decoded] = codec.decode(frame)
    return decoded
