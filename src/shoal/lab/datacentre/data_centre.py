"""Run one world of a scenario: one policy, one overlay, from boot to end."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.core.discovery.load_gossip import GossipNeighbours, LoadGossip
from shoal.core.events import DrainRequested, NeighboursChanged
from shoal.core.peer import Peer
from shoal.core.scheduling.policy_lookup import PolicyLookup
from shoal.lab.datacentre.gossip_probes import GossipProbes
from shoal.lab.datacentre.jobs import OWNER, DrawnJob, DrawnJobs
from shoal.lab.datacentre.recorder import Meter, Recorder
from shoal.lab.datacentre.traffic import Traffic
from shoal.model.ids import NodeId
from shoal.model.resources import Capacity
from shoal.policy.registry import Registry, installed
from shoal.policy.table.domains import OVERSUBSCRIPTION
from shoal.sim.agenda import Agenda
from shoal.sim.clients import SimClients
from shoal.sim.node import trust
from shoal.sim.node.assembly import join_roles
from shoal.sim.node.host import NodeLife, NodeSpec
from shoal.sim.world import World
from shoal.topology import overlays
from shoal.topology.routes import Routes

if TYPE_CHECKING:
    from shoal.core.events import CancelRequested, JobSubmitted
    from shoal.lab.datacentre.scenario import OverlayName
    from shoal.lab.datacentre.settings import ScenarioSettings
    from shoal.sim.node.host import SimHost
    from shoal.sim.workload import Errand
    from shoal.topology.fabric import Fabric
    from shoal.topology.overlays import Neighbours

JITTER_S: Final = 20e-6
BOOT_S: Final = 1.0  # hosts boot one after another within this
REWIRE_S: Final = 5.0  # hosts need so long to notice a failure and compute overlays
DRAIN_S: Final = 10.0  # a host that leaves lets its tasks go on for so long
STEP_S: Final = 5.0  # of virtual time, between two looks at how far it is
GRACE_S: Final = 3_600.0  # after the last job came, if nothing else says when to end
PARTNERS: Final = 8  # links that a host keeps for gossip with drawn neighbours
ROLES: Final = ("scheduler", "worker")

Progress = Callable[[int, int], None]
"""Told how many jobs have ended, of how many."""


class RunCost(msgspec.Struct, frozen=True, kw_only=True):
    """What it cost to simulate a run."""

    events: int
    wall_s: float
    cpu_s: float
    virtual_s: float
    digest: str


@final
class DataCentre:
    """The hosts of a fabric, and everything that happens on it."""

    def __init__(
        self,
        settings: ScenarioSettings,
        fabric: Fabric,
        drawn: DrawnJobs,
        *,
        policy: str,
        overlay: OverlayName,
    ) -> None:
        self.settings = settings
        self.policy = policy
        self.overlay: OverlayName = overlay
        self.fabric = fabric
        self.routes = Routes(fabric)
        self.drawn = drawn
        self.names = [NodeId(fabric.nodes[host].name) for host in fabric.hosts]
        agenda = Agenda()
        nodes = dict(zip(self.names, fabric.hosts, strict=True))
        by_job = {drawn_job.job: drawn_job for drawn_job in drawn.jobs}
        self.traffic = Traffic(agenda, self.routes, nodes, by_job, settings.hosts)
        devices = {f"gpu{n}": n for n in range(settings.hosts.devices_max)}
        self.recorder = Recorder(
            agenda, drawn.jobs, self.traffic, devices, drawn.services
        )
        self.meter = Meter(self.routes)
        self.world = World(settings.seed, agenda, self._assemble, self.recorder)
        self.world.network.jitter_s = JITTER_S
        self.world.network.loss = settings.loss
        self.world.network.paths = self.meter
        self.world.scene.pacing = self.traffic.pacing
        self.world.plans.update(drawn.plans)
        chance = self.world.stream("ear")
        self.probes = GossipProbes(agenda, self.recorder, self.routes, chance)
        self.recorder.clients = SimClients(agenda, self._submit)
        self._chance = self.world.stream("churn")
        self._custom = installed()
        self._neighbours = self._wire()
        self._pending = 0  # planned_faults to come
        self._populate()
        self._plan_faults()

    # Building.

    def _wire(self) -> Neighbours | None:
        """Return the gossip neighbours of each host; None if drawn anew each time."""
        match self.overlay:
            case "random":
                return None
            case "flood":
                return overlays.flood(self.routes)
            case "mst":
                return overlays.spanning_tree(self.routes)
            case "nearest":
                return overlays.nearest(self.routes, self.settings.nearest)

    def _told_by(self, place: int) -> tuple[NodeId, ...] | None:
        if self._neighbours is None:
            return None
        others = self._neighbours[self.fabric.hosts[place]]
        return tuple(NodeId(self.fabric.nodes[other].name) for other in others)

    def _assemble(self, life: NodeLife) -> Peer:
        settings = self.settings
        place = self.world.hosts[life.spec.id].index
        hood = GossipNeighbours(
            fixed=self._told_by(place),
            drawn_from=self._partners(place),
            fan_out=settings.fan_out,
            repeats=settings.repeats,
            interval_s=settings.interval_s,
            known_max=settings.known,
        )
        return join_roles(
            life,
            LoadGossip(life.spec.id, Random(life.rng.getrandbits(64)), hood),
            policies=PolicyLookup(Registry(self._custom), self.policy),
            path_cost=partial(self._path_cost_us, self.fabric.hosts[place]),
        )

    def _partners(self, place: int) -> list[NodeId]:
        """Return the hosts among which a host draws its gossip targets.

        No host keeps links to all of ten thousand, and a new link for every message
        would cost more than the message.
        """
        if len(self.names) <= PARTNERS:
            return self.names
        return self.world.stream(f"partners/{place}").sample(self.names, PARTNERS)

    def _path_cost_us(self, here: int, node: NodeId) -> int | None:
        there = self.fabric.index.get(node)
        cost_ns = None if there is None else self.routes.distance(here, there)
        return None if cost_ns is None else max(1, round(2 * cost_ns / 1_000))

    def _populate(self) -> None:
        late = {h.name for h in self.settings.planned_faults if h.what == "join"}
        boots = self.world.stream("boot")
        for place, node in enumerate(self.names):
            leaf = self.routes.anchor(self.fabric.hosts[place])
            spec = NodeSpec(
                id=node,
                roles=ROLES,
                owner=OWNER,
                grant=trust.grant(node, ROLES, OWNER, valid_for_s=1e9),
                capacity=_labelled(
                    self.settings.hosts[place].capacity, self.fabric, leaf
                ),
            )
            self.world.add(spec, up=False)
            if node not in late:
                at_s = boots.uniform(0.0, BOOT_S)
                self.world.agenda.at(at_s, self.world.restart, node)
        clients = self.recorder.clients
        assert clients is not None
        for errand in self.drawn.errands:
            self.world.agenda.at(errand.at_s, self.recorder.submitted, errand.job.id)
            clients.go(errand)
        self.world.agenda.at(BOOT_S, self._listen)

    def _listen(self) -> None:
        self.probes.listen(list(self.world.hosts.values()))

    def _submit(self, errand: Errand, request: JobSubmitted | CancelRequested) -> bool:
        """Submit a request at its host, or at the next one that is up."""
        first = self.world.hosts[errand.scheduler].index
        for step in range(len(self.names)):
            node = self.names[(first + step) % len(self.names)]
            if self.world.hosts[node].up:
                return self.world.submit(node, request)
        return False

    # What goes wrong.

    def _plan_faults(self) -> None:
        for fault in self.settings.planned_faults:
            self._later(fault.at_s, partial(self._happen, fault.what), fault.name)
            if fault.what == "fail" and fault.for_s is not None:
                self._later(fault.at_s + fault.for_s, self._mend, fault.name)
        if self.settings.churn_every_s is not None:
            self.world.agenda.after(self._pause_s(), self._churn)

    def _later(self, at_s: float, call: Callable[[str], None], name: str) -> None:
        self._pending += 1
        self.world.agenda.at(at_s, self._now, call, name)

    def _now(self, call: Callable[[str], None], name: str) -> None:
        self._pending -= 1
        call(name)

    def _happen(self, what: str, name: str) -> None:
        match what:
            case "fail":
                self._fail(name)
            case "join":
                self.world.restart(NodeId(name))
            case _:
                host = self.world.hosts[NodeId(name)]
                self.world.feed(host.id, DrainRequested(DRAIN_S))
                self.world.agenda.after(DRAIN_S, self.world.leave, host.id)

    def _fail(self, name: str) -> None:
        self.fabric.fail(name)
        if NodeId(name) in self.world.hosts:
            self.world.crash(NodeId(name))
        self._fabric_changed()

    def _mend(self, name: str) -> None:
        self.fabric.mend(name)
        if NodeId(name) in self.world.hosts:
            self.world.restart(NodeId(name))
        self._fabric_changed()

    def _fabric_changed(self) -> None:
        self.world.network.notice_cuts()
        self.traffic.fabric_changed()
        if self._neighbours is not None:
            self.world.agenda.after(REWIRE_S, self._rewire)

    def _rewire(self) -> None:
        self._neighbours = self._wire()
        for place, host in enumerate(self.world.hosts.values()):
            told = self._told_by(place)
            assert told is not None
            if host.up:
                host.feed(NeighboursChanged(told))

    def _pause_s(self) -> float:
        assert self.settings.churn_every_s is not None
        return self.settings.churn_every_s * self._chance.uniform(0.5, 1.5)

    def _churn(self) -> None:
        up = [host for host in self.world.hosts.values() if host.up]
        if len(up) > 1:
            victim = self._chance.choice(up).id
            self._fail(victim)
            self.world.agenda.after(self.settings.churn_down_s, self._mend, victim)
        self.world.agenda.after(self._pause_s(), self._churn)

    # Running.

    def run(self, progress: Progress | None = None) -> RunCost:
        """Run until all jobs have ended, or none can."""
        until_s = self.settings.until_s
        if until_s is None:
            until_s = self.drawn.last_s + GRACE_S
        began, began_cpu = time.perf_counter(), time.process_time()
        total = len(self.drawn.jobs)
        while self.world.now < until_s and not self._is_over():
            self.world.run(min(until_s, self.world.now + STEP_S))
            if progress is not None:
                progress(self.recorder.ended, total)
        self.recorder.finish()
        self.traffic.finish()
        self.probes.finish()
        return RunCost(
            events=self.world.events,
            wall_s=time.perf_counter() - began,
            cpu_s=time.process_time() - began_cpu,
            virtual_s=self.world.now,
            digest=self.world.history.digest(),
        )

    def _is_over(self) -> bool:
        """Whether no job will end any more: all have, or their hosts are gone."""
        if self.recorder.ended == len(self.drawn.jobs):
            return True
        if self.world.now < self.drawn.last_s + 60.0 or self._pending:
            return False
        if self.settings.churn_every_s is not None:
            return False
        return not any(
            self._is_reachable(self.world.hosts[drawn_job.host])
            for drawn_job in self.unended()
        )

    def unended(self) -> list[DrawnJob]:
        """Return the jobs that have not ended."""
        lives = self.recorder.lives
        return [
            drawn_job for drawn_job in self.drawn.jobs if lives[drawn_job.job].ended < 0
        ]

    def why_unended(self, drawn_job: DrawnJob) -> str:
        """Say in a few words what keeps a job from ending."""
        host = self.world.hosts[drawn_job.host]
        if not host.up:
            return f"{host.id}, where it was submitted, is down"
        if not self._is_reachable(host):
            return f"{host.id}, where it was submitted, is cut off"
        if self.recorder.lives[drawn_job.job].started < 0:
            return self._why_it_waits(host, drawn_job) or "it still waits for room"
        return "it has not run to its end"

    def _why_it_waits(self, host: SimHost, drawn_job: DrawnJob) -> str:
        """Say why a job never began, as `shoal explain` does."""
        (errand,) = (e for e in self.drawn.errands if e.job.id == drawn_job.job)
        task = next(iter(errand.job.tasks()))
        if not isinstance(host.machine, Peer) or host.machine.scheduler is None:
            return ""
        found = host.machine.scheduler.explain(task.id)
        return "; ".join(found.why) if found is not None else ""

    def _is_reachable(self, host: SimHost) -> bool:
        """Whether a host is up and can hear at least one other."""
        node = self.fabric.hosts[host.index]
        return host.up and any(True for _ in self.fabric.neighbours(node))


def _labelled(capacity: Capacity, fabric: Fabric, leaf: int) -> Capacity:
    """Declare the leaf of a host, its pod, and how narrow the network above it is.

    The pod is the first switch above the leaf.
    """
    labels = [("leaf", fabric.nodes[leaf].name)]
    above = _above(fabric, leaf)
    if above:
        labels.append(("pod", min(fabric.nodes[switch].name for switch in above)))
    narrow = max((_ratio(fabric, switch) for switch in (leaf, *above)), default=1.0)
    labels.append((OVERSUBSCRIPTION, f"{narrow:g}"))
    return msgspec.structs.replace(capacity, labels=tuple(labels))


def _above(fabric: Fabric, switch: int) -> list[int]:
    tier = fabric.nodes[switch].tier
    joined = (end for end, _ in fabric.neighbours(switch))
    return [end for end in joined if fabric.nodes[end].tier > tier]


def _ratio(fabric: Fabric, switch: int) -> float:
    """Return the bandwidth below a switch by that of its uplinks.

    Without any above it, its uplinks go to others of its tier, or nowhere.
    """
    tier = fabric.nodes[switch].tier
    below = up = 0
    for end, link in fabric.neighbours(switch):
        if fabric.nodes[end].tier < tier:
            below += fabric.links[link].bandwidth_bps
        else:
            up += fabric.links[link].bandwidth_bps
    return below / up if up else 1.0
