"""Simulate a whole shoal in virtual time: nodes, network, disks and clients.

The seed determines everything. Each node and each part of the world has its own random
stream, so that a change in one disturbs the others as little as possible.
"""

from __future__ import annotations

from random import Random
from typing import final

from shoal.core.events import CancelRequested, Event, JobSubmitted, MessageReceived
from shoal.core.membership.members import TERM
from shoal.model.ids import NodeId
from shoal.sim.agenda import Agenda
from shoal.sim.history import WorldHistory
from shoal.sim.network import SimNetwork, Transform
from shoal.sim.node import trust
from shoal.sim.node.dht import SimDht
from shoal.sim.node.driver import Plans, Starts
from shoal.sim.node.host import Assemble, HostWatch, NodeSpec, Scene, SimHost, Tap


@final
class World:
    """Nodes in virtual time; events happen only within `run`."""

    def __init__(
        self,
        seed: int,
        agenda: Agenda,
        assemble: Assemble,
        watch: HostWatch,
        *,
        transform: Transform | None = None,
        tap: Tap | None = None,
    ) -> None:
        """Create an empty world; `transform` is applied to every message."""
        self.seed = seed
        self.agenda = agenda
        self.network = SimNetwork(
            self.agenda, self.stream("network"), self.stream("echoes")
        )
        self.directory = SimDht(self.agenda, self.stream("directory"))
        self.history = WorldHistory()
        self.plans: Plans = {}
        self.starts: Starts = {}
        self.hosts: dict[NodeId, SimHost] = {}
        self.visits: dict[NodeId, int] = {}  # of owners, that go on
        self.scene = Scene(
            agenda=self.agenda,
            network=self.network,
            directory=self.directory,
            history=self.history,
            plans=self.plans,
            starts=self.starts,
            assemble=assemble,
            watch=watch,
            seed=seed,
            hosts=self.hosts,
            tap=tap,
        )
        self.network.transform = transform

    @property
    def now(self) -> float:
        """Virtual seconds since the world began."""
        return self.agenda.now

    @property
    def events(self) -> int:
        """Number of events fed to machines."""
        return self.history.events

    def stream(self, name: str) -> Random:
        """Return the random stream of one part of the world."""
        return Random(
            f"{self.seed}/{name}"
        )  # A text seed is the same on every machine.

    def run(self, until_s: float) -> None:
        """Run everything due by then."""
        self.agenda.run(until_s)

    def add(self, spec: NodeSpec, *, up: bool = True) -> SimHost:
        """Add a node; one that is not up yet joins at its first `restart`."""
        host = SimHost(
            self.scene, spec, len(self.hosts), self.stream(f"node/{spec.id}")
        )
        self.hosts[spec.id] = host
        self.network.attach(host)
        if up:
            host.boot()
        return host

    def crash(
        self, node: NodeId, *, power: bool = True, closed: bool | None = None
    ) -> None:
        """Crash a node if it is up."""
        host = self.hosts[node]
        if host.up:
            host.crash(power=power, closed=closed)

    def restart(self, node: NodeId) -> None:
        """Boot a node again, if it is down and has not left."""
        host = self.hosts[node]
        if not host.up and not host.left:
            host.boot()

    def leave(self, node: NodeId) -> None:
        """Remove a node for good, closing its sockets cleanly."""
        self.hosts[node].left = True
        self.crash(node, closed=True)

    def feed(self, node: NodeId, event: Event) -> bool:
        """Feed a node an external event; return whether it was up."""
        host = self.hosts[node]
        if host.up:
            host.feed(event)
        return host.up

    def revoke(self, node: NodeId) -> None:
        """Tell all other nodes that a node is revoked."""
        revocation = trust.revocation(node, serial=TERM - 1)
        for host in self.hosts.values():
            if host.id != node:
                self.feed(host.id, MessageReceived(trust.ROOT, revocation))

    def owner_visits(self, node: NodeId, change: int) -> None:
        """Let the owner of a machine come, or leave; one may come again meanwhile."""
        self.visits[node] = self.visits.get(node, 0) + change

    def submit(self, node: NodeId, request: JobSubmitted | CancelRequested) -> bool:
        """Submit a client's request; return whether the node was up."""
        return self.feed(node, request)
