"""Run the world of one seed: its nodes, jobs and faults, with all checkers.

`draw_script` draws everything that the seed decides. `SeedTrial` builds the world and
its checkers from the script, runs it through its faults, heals it, and runs it to its
end. The first violation stops the world and is part of the `SeedOutcome`.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Final, final

import msgspec

from shoal.core.events import CancelRequested, JobSubmitted, MessageReceived
from shoal.core.machine import Decider
from shoal.core.membership.members import serial_for_revocation
from shoal.model.ids import JobId, NodeId
from shoal.model.job import Job
from shoal.model.resources import Capacity
from shoal.protocol import codec
from shoal.protocol.channels.messages import ChannelBatch, ChannelEnd, ChannelOpen
from shoal.protocol.forwarding import ApiPiece
from shoal.protocol.messages import AnyMessage, Report, Role, Welcome
from shoal.protocol.proximity.messages import ProbePiece, ProbeWanted
from shoal.sim.admission.traffic import JoinScript, JoinTraffic, draw_join_script
from shoal.sim.agenda import Agenda
from shoal.sim.artifacts.traffic import BlobScript, BlobTraffic, draw_blob_script
from shoal.sim.artifacts.workload import with_artifacts
from shoal.sim.calls.traffic import CallScript, CallTraffic, draw_calls
from shoal.sim.channels.traffic import (
    ChannelScript,
    ChannelTraffic,
    draw_channel_script,
)
from shoal.sim.checkers.ending import Ending
from shoal.sim.checkers.suite import Suite
from shoal.sim.checkers.violations import Violation
from shoal.sim.clients import SimClients
from shoal.sim.discovery.traffic import (
    NeighbourScript,
    NeighbourTraffic,
    draw_neighbour_script,
)
from shoal.sim.environments.workload import with_environments
from shoal.sim.faults.forger import (
    FORGER,
    KINDS,
    OVERHEARD_MAX,
    Forger,
    Kind,
    forged_grant,
)
from shoal.sim.faults.schedule import (
    DRIFT,
    Cast,
    FaultPlan,
    draw_plan,
    with_wrong_clock,
)
from shoal.sim.forwarding.traffic import ApiScript, ApiTraffic, draw_api_script
from shoal.sim.housekeeping.traffic import WORLDS_SHARE as HOUSE_SHARE
from shoal.sim.housekeeping.traffic import (
    HouseScript,
    HouseTraffic,
    draw_house_script,
    with_calls,
    with_rule,
)
from shoal.sim.lending.traffic import (
    LendingScript,
    LendingTraffic,
    draw_lending_script,
    with_lending_rule,
)
from shoal.sim.mail.traffic import SimTaskMail, draw_mail
from shoal.sim.migration.distinct_nodes import DistinctNodes
from shoal.sim.migration.promises import MigrationPromises
from shoal.sim.migration.workload import moves_in, with_gangs, with_leaf
from shoal.sim.node import trust
from shoal.sim.node.assembly import PeerOpinions, assemble_peer, compact_journal
from shoal.sim.node.host import NodeLife, NodeSpec, Tap
from shoal.sim.proximity.traffic import (
    ProximityScript,
    ProximityTraffic,
    draw_proximity_script,
)
from shoal.sim.workload import (
    OWNERS,
    Errand,
    Workload,
    draw_capacity,
    draw_workload,
)
from shoal.sim.world import World

SPAN_S: Final = (20.0, 90.0)  # duration of the faulty phase
ENCODED_SHARE: Final = 0.1  # share of worlds that encode every message
FORGER_SHARE: Final = 0.3  # share of worlds with a hostile node
POISON_SHARE: Final = 0.1
QUOTA_CPU_MILLI: Final = 4_000  # of some schedulers; enough for any one job
REVOKED_AT_S: Final = 1.0


class SeedOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one seed."""

    seed: int
    violations: tuple[Violation, ...]
    events: int
    virtual_s: float
    jobs: int
    digest: str

    @property
    def replay(self) -> str:
        """The command that replays this seed."""
        return f"python -m shoal.sim.replay {self.seed} --verbose"


class SeedScript(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the seed decides before the world begins."""

    nodes: tuple[NodeSpec, ...]
    joins_s: dict[NodeId, float]  # late joiners; others are there from the start
    workload: Workload
    plan: FaultPlan
    forger: Kind | None
    encoded: bool
    calls: CallScript | None = None
    api: ApiScript | None = None  # API calls, in some worlds
    joining: JoinScript | None = None  # newcomers, in some worlds
    blobs: BlobScript | None = None  # trees that nodes fetch, in some worlds
    neighbours: NeighbourScript | None = None  # members that find each other
    channels: ChannelScript | None = None  # channels to tasks, in some worlds
    house: HouseScript | None = None  # users who keep house, in some worlds
    lending: LendingScript | None = None  # owners who come and go, in some worlds
    proximity: ProximityScript | None = None  # members that measure the network
    moving: bool = False  # gangs may move to better places


def draw_script(seed: int) -> SeedScript:
    """Draw nodes, jobs and faults of a seed."""
    rng = Random(f"{seed}/script")
    span_s = rng.uniform(*SPAN_S)
    nodes = _draw_nodes(rng)
    submitters = [node for node in nodes if "scheduler" in node.roles]
    schedulers = [node.id for node in submitters]
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
    joins_s = {
        node: rng.uniform(1.0, span_s)
        for node in only_workers
        if node != leaving and rng.random() < 0.1
    }
    workload = with_artifacts(
        Random(f"{seed}/artifacts"),
        draw_workload(rng, schedulers, staying, span_s, poison),
    )
    workload = with_environments(Random(f"{seed}/environments"), workload)
    plan = draw_plan(rng, cast, span_s)
    plan = with_wrong_clock(Random(f"{seed}/clock"), cast, plan)
    forger = rng.choice(KINDS) if rng.random() < FORGER_SHARE else None
    script = SeedScript(
        nodes=tuple(nodes),
        joins_s=joins_s,
        workload=draw_mail(Random(f"{seed}/mail"), workload, schedulers, plan.heal_s),
        plan=plan,
        forger=forger,
        encoded=rng.random() < ENCODED_SHARE,
        calls=draw_calls(Random(f"{seed}/calls"), schedulers, plan.heal_s),
        api=draw_api_script(Random(f"{seed}/api"), submitters, span_s),
        joining=draw_join_script(Random(f"{seed}/joining"), span_s),
        blobs=draw_blob_script(
            Random(f"{seed}/blobs"),
            [n.id for n in nodes if n.id != leaving and n.id not in joins_s],
            plan.heal_s,
        ),
        proximity=draw_proximity_script(
            Random(f"{seed}/proximity"), plan.heal_s, forgers=int(forger == "member")
        ),
        neighbours=draw_neighbour_script(Random(f"{seed}/neighbours"), plan.heal_s),
        channels=draw_channel_script(
            Random(f"{seed}/channels"), submitters, plan.heal_s
        ),
    )
    lasting = [node for node in workers if node != leaving]
    script = _with_house(Random(f"{seed}/housekeeping"), script, lasting)
    script = _with_owners(Random(f"{seed}/lending"), script, lasting)
    return _with_moves(Random(f"{seed}/migration"), script, schedulers, staying)


def _with_moves(
    rng: Random, script: SeedScript, schedulers: list[NodeId], rooms: list[Capacity]
) -> SeedScript:
    """Add gangs that move to better places, in some worlds."""
    if not moves_in(rng):
        return script
    return msgspec.structs.replace(
        script,
        nodes=tuple(map(with_leaf, script.nodes)),
        workload=with_gangs(rng, script.workload, schedulers, rooms),
        moving=True,
    )


def _with_owners(rng: Random, script: SeedScript, workers: list[NodeId]) -> SeedScript:
    """Add owners who come and go, in some worlds."""
    lending = draw_lending_script(rng, workers, script.plan.heal_s)
    if lending is None:
        return script
    nodes = tuple(with_lending_rule(node, lending) for node in script.nodes)
    return msgspec.structs.replace(script, nodes=nodes, lending=lending)


def _with_house(rng: Random, script: SeedScript, workers: list[NodeId]) -> SeedScript:
    """Add users who keep house, in some worlds."""
    if rng.random() >= HOUSE_SHARE:
        return script
    workload = with_calls(rng, script.workload)
    return msgspec.structs.replace(
        script,
        nodes=tuple(
            with_rule(n) if "scheduler" in n.roles else n for n in script.nodes
        ),
        workload=workload,
        house=draw_house_script(rng, workload, workers, script.plan.heal_s),
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
class SeedTrial:
    """The world of one seed, with its clients and checkers."""

    def __init__(
        self, seed: int, script: SeedScript | None = None, tap: Tap | None = None
    ) -> None:
        """Prepare the world of `script`, by default the seed's own."""
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
        self.api: ApiTraffic | None = None
        if script.api is not None:
            self.api = ApiTraffic(script.api, self.world, self.suite)
            self.world.scene.performers.update(self.api.performers)
            self.suite.sent[ApiPiece] = self.api.promises.sent
        self.joining: JoinTraffic | None = None
        if script.joining is not None:
            self.joining = JoinTraffic(script.joining, self.world, self.suite)
            self.world.scene.performers.update(self.joining.performers)
            self.suite.sent[Welcome] = self.joining.promises.sent
        self.blobs: BlobTraffic | None = None
        if script.blobs is not None:
            self.blobs = BlobTraffic(script.blobs, self.world, self.suite)
        self.neighbours = self._add_neighbours(script.neighbours)
        self.channels: ChannelTraffic | None = None
        if script.channels is not None:
            self.channels = self._add_channels(script.channels)
        self._add_people(script)
        self.clients = self.suite.clients = SimClients(agenda, self._submit)
        self.suite.hosts = self.world.hosts
        if any(plan.mail is not None for plan in script.workload.plans.values()):
            self._add_mail()
        self.calls: CallTraffic | None = None
        if script.calls is not None:
            self.calls = self._add_calls(script.calls, jobs)
        self.proximity = self._add_proximity(script.proximity)
        self.migration = self._add_migration(jobs) if script.moving else None
        self.distinct_nodes = DistinctNodes(self.suite.violations, jobs)
        self.suite.readers.append(self.distinct_nodes.safe)

    def run(self) -> SeedOutcome:
        """Run the world through its faults, heal it, and run it to its end."""
        return SeedOutcome(
            violations=self.suite.violations.found_in(self._run),
            seed=self.seed,
            events=self.world.events,
            virtual_s=self.world.now,
            jobs=len(self.clients.orders),
            digest=self.world.history.digest(),
        )

    def _run(self) -> None:
        world, plan, code = self.world, self.script.plan, self.script.workload.code
        world.plans.update(self.script.workload.plans)
        if self.script.forger is not None:
            self._add_forger(self.script.forger)
        world.scene.disks_fail_until_s = plan.heal_s
        for spec in self.script.nodes:
            joins_s = self.script.joins_s.get(spec.id)
            world.add(spec, up=joins_s is None)
            if joins_s is not None:
                world.agenda.at(joins_s, world.restart, spec.id)
        for host in world.hosts.values():
            if code is not None and "scheduler" in host.spec.roles:
                host.blobs.keep(code)
        more = (self.api, self.joining, self.blobs, self.neighbours, self.channels)
        for traffic in (*more, self.house, self.lending, self.proximity):
            if traffic is not None:
                traffic.schedule()
        for errand in self.script.workload.errands:
            self.clients.go(errand)
        if self.calls is not None:
            self.calls.begin()
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
        found = (self.neighbours, self.proximity)
        settled = (self.blobs, *found, self.joining, self.house, self.lending)
        for ended in settled:
            if ended is not None:
                ended.settle()

    def _add_people(self, script: SeedScript) -> None:
        """Let users keep house, and owners come and go; check that."""
        self.house: HouseTraffic | None = None
        if script.house is not None:
            self.house = HouseTraffic(script.house, self.world, self.suite)
            self.world.scene.performers.update(self.house.performers)
        self.lending: LendingTraffic | None = None
        if script.lending is not None:
            self.lending = LendingTraffic(script.lending, self.world, self.suite)

    def _add_mail(self) -> None:
        """Let tasks write letters, and check them."""
        world = self.world
        letters = self.suite.follow_letters(self.script.plan.heal_s)
        mail = SimTaskMail(world.agenda, world.network, letters, world.stream("mail"))
        world.scene.talks.append(mail)
        world.scene.performers.update(mail.performers)

    def _add_calls(self, script: CallScript, jobs: dict[JobId, Job]) -> CallTraffic:
        """Let a client call functions, and check its calls."""
        promises = self.suite.follow_calls(self.script.plan.heal_s)
        calls = CallTraffic(script, self.world, self.clients, jobs, promises)
        self.world.scene.talks.append(calls)
        self.world.scene.performers.update(calls.performers)
        self.suite.readers.append(calls.safe)
        return calls

    def _add_neighbours(
        self, script: NeighbourScript | None
    ) -> NeighbourTraffic | None:
        """Let members find each other, if any, and check that."""
        if script is None:
            return None
        found = NeighbourTraffic(script, self.world, self.suite.violations)
        self.world.scene.performers.update(found.performers)
        return found

    def _add_proximity(self, script: ProximityScript | None) -> ProximityTraffic | None:
        """Let members measure the network between them, if any, and check that."""
        if script is None:
            return None
        found = ProximityTraffic(script, self.world, self.suite.violations)
        self.suite.sent[ProbeWanted] = found.promises.asked
        self.suite.sent[ProbePiece] = found.promises.given
        return found

    def _add_migration(self, jobs: dict[JobId, Job]) -> MigrationPromises:
        """Check gangs that move to better places."""
        violations, nodes = self.suite.violations, self.script.nodes
        promises = MigrationPromises(violations, nodes, jobs)
        self.suite.readers.append(promises.safe)
        return promises

    def _add_channels(self, script: ChannelScript) -> ChannelTraffic:
        """Let users open channels to tasks, and check them."""
        channels = ChannelTraffic(script, self.world, self.suite)
        self.world.scene.talks.append(channels)
        self.world.scene.performers.update(channels.performers)
        self.suite.sent.update(
            dict.fromkeys((ChannelBatch, ChannelEnd), channels.promises.sent)
        )
        self.suite.also_sent(Report, channels.promises.reported)
        self.suite.told.update(
            dict.fromkeys((ChannelOpen, ChannelBatch), channels.decided)
        )
        return channels

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
        """Send one node the root's revocation of the forger."""
        first = self.script.nodes[0].id
        message = trust.revocation(FORGER, serial=serial_for_revocation(-1))
        self.world.feed(first, MessageReceived(trust.ROOT, message))

    def _assemble(self, life: NodeLife) -> Decider:
        if life.spec.id != FORGER:
            return assemble_peer(life)
        overheard = self.world.network.overheard
        assert overheard is not None
        return Forger(life.spec.grant, overheard, life.rng)

    def _submit(self, errand: Errand, request: JobSubmitted | CancelRequested) -> bool:
        return self.world.feed(errand.scheduler, request)


def run_seed(seed: int) -> SeedOutcome:
    """Run the world of one seed from its beginning to its end."""
    return SeedTrial(seed).run()


def through_bytes(message: AnyMessage) -> AnyMessage:
    """Encode a message and decode it again, as a real network would."""
    [frame] = codec.encode([message])
    [decoded] = codec.decode(frame)
    return decoded
