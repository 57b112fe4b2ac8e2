"""A shoal of very many nodes in virtual time, which come, stay a while, and go.

Theory of operation. All nodes are there at the start, as after an earlier life: each
knows some members. They come up one after another during `BOOT_S`. From then on each
leaves at a random moment, and another comes in its place at once; half of those that
come have been there before, and half know nothing but two gates. One node of a hundred
submits: gangs of eight, one after the other.

A `lean` crowd needs less memory, for very many nodes: they measure no distances, start
with fewer links, and remember `host.LEAN_KNOWN` workers instead of a thousand.

What is counted starts after `warm_s`. The network has distances but no losses: how the
machines cope with those is what `sim` is for.
"""

from __future__ import annotations

from math import hypot, log
from random import Random
from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.core.discovery.events import NetworkOpened
from shoal.core.durability.journal import Assigned
from shoal.core.events import (
    AddressesChanged,
    Booted,
    JobSubmitted,
    MessageReceived,
    PathMeasured,
    PeerConnected,
    PeerLost,
    Record,
    Send,
    SizeEstimated,
)
from shoal.lab.scale.directory import BranchedDirectory
from shoal.lab.scale.host import ScaleHost
from shoal.lab.scale.meter import TrafficMeter
from shoal.model.ids import GroupId, JobId, NodeId, OwnerId, TaskId
from shoal.model.job import Group, Job, Task
from shoal.model.resources import GIB, Capacity, Device, Profile
from shoal.protocol.messages import Commit
from shoal.sim.agenda import Agenda
from shoal.sim.node import trust

if TYPE_CHECKING:
    from shoal.core.events import Effect
    from shoal.protocol.messages import AnyMessage

OWNER: Final = OwnerId("ann")
BOOT_S: Final = 30.0
SESSION_S: Final = 3 * 3_600.0
"""The median time that a node stays."""

SUBMIT_SHARE: Final = 100
GATE_SHARE: Final = 200
"""One node of so many submits, and one is a gate."""

GATES_KNOWN: Final = 2
MET: Final = 12
"""Gates and members that a node knows when it starts."""

LEAN_MET: Final = 7

JOB_EVERY_S: Final = 60.0
GANG: Final = 8
SLOT: Final = Profile(cpu_milli=4_000, memory_bytes=4 * GIB)
RUN_S: Final = (20.0, 40.0)

GOSSIP_S: Final = (0.02, 0.8)
GOSSIP_COPIES: Final = 3.0
"""A mesh of six neighbours brings each node its gossip about three times."""

TOLD_MAX: Final = 64
"""As `runtime.discovery.finders` has it."""

CLOSED_S: Final = (0.0, 1.0)
SILENT_S: Final = (3.0, 6.0)
AGAIN_MEASURED_S: Final = (5.0, 60.0)
"""After its first, a link tells its round trip again so much later, once. Real links
measure every ten seconds, which changes nothing, since distances do not change here."""

RTT_MAX_S: Final = 0.08
SIZE_KNOWN_S: Final = 1.0


class JobTimes(msgspec.Struct, kw_only=True):
    """What became of one job."""

    began: float
    found: float = -1.0  # when its workers had all been found: the first commit
    committed: float = -1.0


@final
class Crowd:
    """All nodes of one shoal, and what happens between them."""

    def __init__(self, nodes: int, seed: int, *, lean: bool = False) -> None:
        self.lean = lean
        self.rng = Random(f"{seed}/{nodes}")
        self.agenda = Agenda()
        self.events = 0
        self.meter = TrafficMeter(nodes)
        self.directory = BranchedDirectory(self.rng)
        self.jobs: dict[JobId, JobTimes] = {}
        self.changed_at = [0.0] * nodes  # when the load of each changed last
        self.arrivals = 0
        self.hosts: list[ScaleHost] = []
        self.by_id: dict[NodeId, ScaleHost] = {}
        self._open: dict[int, JobTimes] = {}  # the latest job of each submitter
        self._numbers = nodes
        self._grow(nodes)

    def run(self, until_s: float) -> None:
        """Run everything due by then."""
        self.agenda.run(until_s)

    def estimate(self) -> int:
        """Return about how many nodes there are, as one of them estimates it."""
        return max(1, int(len(self.hosts) * self.rng.uniform(0.7, 1.4)))

    def run_s(self) -> float:
        """Return how long a task runs."""
        return self.rng.uniform(*RUN_S)

    # Nodes.

    def _grow(self, nodes: int) -> None:
        for place in range(nodes):
            self._add(NodeId(f"n{place}"), place)
        for host in self.hosts:
            met = LEAN_MET if self.lean else MET
            some = self.rng.sample(self.hosts, min(met, nodes))
            host.met = {o.id: (_address(o.id),) for o in some if o is not host}
            self.agenda.at(self.rng.uniform(0.0, BOOT_S), self._boot, host)
            if host.submits:
                first_s = BOOT_S + self.rng.uniform(0.0, JOB_EVERY_S)
                self.agenda.at(first_s, self._submit, host.place)

    def _add(self, node: NodeId, place: int) -> None:
        rng = self.rng
        submits, is_gate = place % SUBMIT_SHARE == 7, place % GATE_SHARE == 0
        roles = ("scheduler", "worker") if submits else ("worker",)
        granted = (*roles, "gate") if is_gate else roles
        cpus = rng.choice((4, 8, 8, 16))
        gpus = [Device("gpu0", "nvidia", "RTX3090", 24 * GIB)] if place % 4 == 0 else []
        capacity = Capacity(cpus * 1_000, 2 * cpus * GIB, 100 * GIB, tuple(gpus))
        grant = trust.grant(node, granted, OWNER, valid_for_s=1e9)
        host = ScaleHost(
            self, node, place, grant, capacity, is_gate=is_gate, submits=submits
        )
        host.where = (rng.random(), rng.random())
        gates = range(0, self._places, GATE_SHARE)
        known = rng.sample(gates, min(GATES_KNOWN, len(gates)))
        host.gates = tuple(_address(self._name(gate)) for gate in known)
        if place < len(self.hosts):
            self.hosts[place] = host
        else:
            self.hosts.append(host)
        self.by_id[node] = host

    @property
    def _places(self) -> int:
        return len(self.changed_at)

    def _name(self, place: int) -> NodeId:
        """Return who is at a place now; at the start those to come are named."""
        if place < len(self.hosts):
            return self.hosts[place].id
        return NodeId(f"n{place}")

    def _boot(self, host: ScaleHost) -> None:
        now = self.agenda.now
        host.assemble(now)
        self.changed_at[host.place] = now
        host.feed(Booted())
        host.feed(AddressesChanged((_address(host.id),)))
        host.feed(NetworkOpened(host.is_gate))
        size = SizeEstimated(self.estimate())
        self.agenda.after(SIZE_KNOWN_S, host.hear, host.life, size)
        rate = log(2) / SESSION_S
        self.agenda.after(self.rng.expovariate(rate), self._leave, host, host.life)

    def _leave(self, host: ScaleHost, life: int) -> None:
        """Let a node go; one that was here before, or a new one, comes."""
        if host.life != life:
            return
        host.up, host.machine = False, None
        host.life += 1
        is_clean = self.rng.random() < 0.5
        for peer in list(host.links):
            far, _ = host.links[peer]
            delay_s = self.rng.uniform(*(CLOSED_S if is_clean else SILENT_S))
            self.agenda.after(delay_s, self._lose, far, far.life, host)
        host.links.clear()
        self.arrivals += 1
        if host.is_gate or host.submits or self.rng.random() < 0.5:
            self.agenda.after(1.0, self._boot, host)  # It comes back as itself.
            return
        del self.by_id[host.id]
        self.directory.forget(host.id)
        node = NodeId(f"n{self._numbers}")
        self._numbers += 1
        self._add(node, host.place)
        self.agenda.after(1.0, self._boot, self.hosts[host.place])

    # Jobs.

    def _submit(self, place: int) -> None:
        pause_s = self.rng.uniform(0.5, 1.5) * JOB_EVERY_S
        self.agenda.after(pause_s, self._submit, place)
        host = self.hosts[place]
        if not host.up:
            return
        job = _gang(JobId(f"j{len(self.jobs)}"))
        times = self.jobs[job.id] = JobTimes(began=self.agenda.now)
        self._open[place] = times
        host.feed(JobSubmitted(token=1, job=job))

    def watch(self, host: ScaleHost, effects: list[Effect]) -> None:
        """Note what a node that submits decides about its latest job."""
        times = self._open.get(host.place)
        if times is None:
            return
        for effect in effects:
            if type(effect) is Send and type(effect.message) is Commit:
                if times.found < times.began:
                    times.found = self.agenda.now
            elif (
                type(effect) is Record
                and type(effect.entry) is Assigned
                and times.committed < times.began
            ):
                times.committed = self.agenda.now
                del self._open[host.place]
                return

    # Messages.

    def send(self, src: ScaleHost, peer: NodeId, message: AnyMessage) -> None:
        """Send a message, opening a link if there is none."""
        link = src.links.get(peer) or self._dial(src, peer)
        if link is None:
            return
        dst, ready_at = link
        self.meter.carried(src.place, dst.place, message)
        at = self.agenda.now + self._latency_s(src, dst)
        event = MessageReceived(src.id, message)
        self.agenda.at(max(at, ready_at), _deliver, src, dst, dst.life, event)

    def reach(self, src: ScaleHost, peer: NodeId) -> None:
        """Open a link unless there is one."""
        if peer not in src.links:
            self._dial(src, peer)

    def spread(self, src: ScaleHost, message: AnyMessage) -> None:
        """Tell neighbours, who do not pass it on."""
        peers = list(src.links)
        if len(peers) > TOLD_MAX:
            peers = self.rng.sample(peers, TOLD_MAX)
        for peer in peers:
            self.send(src, peer, message)

    def publish(self, src: ScaleHost, message: AnyMessage) -> None:
        """Tell everybody, by links and by gossip."""
        self.spread(src, message)
        self.meter.published(len(self.hosts), GOSSIP_COPIES, message)
        event = MessageReceived(src.id, message)
        for host in self.hosts:
            if host.up and host is not src:
                delay_s = self.rng.uniform(*GOSSIP_S)
                self.agenda.after(delay_s, host.hear, host.life, event)

    def _dial(self, src: ScaleHost, peer: NodeId) -> tuple[ScaleHost, float] | None:
        dst = self.by_id.get(peer)
        if dst is None or dst is src or not dst.up:
            return None
        ready_at = self.agenda.now + 3 * self._latency_s(src, dst)
        link = src.links[peer] = (dst, ready_at)
        dst.links[src.id] = (src, ready_at)
        for host, far in ((src, dst), (dst, src)):
            self.agenda.at(ready_at, self._connected, host, host.life, far, far.life)
        return link

    def _connected(
        self, host: ScaleHost, life: int, far: ScaleHost, far_life: int
    ) -> None:
        if host.life != life or far.life != far_life or not host.up:
            return
        host.feed(PeerConnected(far.id, far.grant))
        if self.lean:
            return
        rtt_s = 2 * self._latency_s(host, far)
        self._measured(host, life, far, rtt_s)
        again_s = self.rng.uniform(*AGAIN_MEASURED_S)
        self.agenda.after(again_s, self._measured, host, life, far, rtt_s)

    def _measured(
        self, host: ScaleHost, life: int, far: ScaleHost, rtt_s: float
    ) -> None:
        if far.id in host.links:
            host.hear(life, PathMeasured(far.id, rtt_s))

    def _lose(self, host: ScaleHost, life: int, gone: ScaleHost) -> None:
        link = host.links.get(gone.id)
        if host.life != life or link is None:
            return
        del host.links[gone.id]
        host.hear(life, PeerLost(gone.id))

    def _latency_s(self, a: ScaleHost, b: ScaleHost) -> float:
        (x, y), (u, v) = a.where, b.where
        return 0.0005 + hypot(x - u, y - v) * RTT_MAX_S / 2


def _deliver(src: ScaleHost, dst: ScaleHost, life: int, event: MessageReceived) -> None:
    if src.id in dst.links:
        dst.hear(life, event)


def _address(node: NodeId) -> str:
    return f"/ip4/203.0.113.7/tcp/4001/p2p/{node}"


def _gang(id_: JobId) -> Job:
    group = GroupId(f"{id_}.gang")
    tasks = tuple(
        Task(
            id=TaskId(f"{group}.{index}"),
            job=id_,
            group=group,
            index=index,
            size=GANG,
            profiles=(SLOT,),
        )
        for index in range(GANG)
    )
    gang = Group(id=group, tasks=tasks, gang_min=GANG)
    return Job(id=id_, owner=OWNER, groups=(gang,))
