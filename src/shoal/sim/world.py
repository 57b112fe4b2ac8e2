"""A whole shoal in virtual time: nodes, their network, their disks, their clients.

Everything that happens follows from the seed. Chance is split into one stream for
each node and each part of the world, so that a change in one does not disturb the
others more than it must.
"""

from __future__ import annotations

from random import Random
from typing import final

from shoal.core.events import CancelRequested, Event, JobSubmitted
from shoal.model.ids import NodeId
from shoal.sim.agenda import Agenda
from shoal.sim.directory import Directory
from shoal.sim.driver import Plans, Starts
from shoal.sim.history import History
from shoal.sim.host import Assemble, Host, NodeSpec, Scene, Tap, Watch
from shoal.sim.network import Network, Transform


@final
class World:
    """Nodes in virtual time. Nothing happens outside of `run`."""

    def __init__(
        self,
        seed: int,
        agenda: Agenda,
        assemble: Assemble,
        watch: Watch,
        *,
        transform: Transform | None = None,
        tap: Tap | None = None,
    ) -> None:
        """Begin empty. Every message on its way goes through `transform`."""
        self.seed = seed
        self.agenda = agenda
        self.network = Network(self.agenda, self.stream("network"))
        self.directory = Directory(self.agenda, self.stream("directory"))
        self.history = History()
        self.plans: Plans = {}
        self.starts: Starts = {}
        self.hosts: dict[NodeId, Host] = {}
        self.scene = Scene(
            agenda=self.agenda,
            network=self.network,
            directory=self.directory,
            history=self.history,
            plans=self.plans,
            starts=self.starts,
            assemble=assemble,
            watch=watch,
            tap=tap,
        )
        self.network.transform = transform

    @property
    def now(self) -> float:
        """Seconds of virtual time since the world began."""
        return self.agenda.now

    @property
    def events(self) -> int:
        """How often a machine was told something."""
        return self.history.events

    def stream(self, name: str) -> Random:
        """Return the chance that belongs to one part of the world."""
        return Random(f"{self.seed}/{name}")  # Hashed by content: the same everywhere.

    def run(self, until_s: float) -> None:
        """Let everything happen that is due by then."""
        self.agenda.run(until_s)

    def add(self, spec: NodeSpec, *, up: bool = True) -> Host:
        """Let a node join; one that is not up yet joins by its first `restart`."""
        host = Host(self.scene, spec, len(self.hosts), self.stream(f"node/{spec.id}"))
        self.hosts[spec.id] = host
        self.network.attach(host)
        if up:
            host.boot()
        return host

    def crash(
        self, node: NodeId, *, power: bool = True, closed: bool | None = None
    ) -> None:
        """Bring a node down, if it is up."""
        host = self.hosts[node]
        if host.up:
            host.crash(power=power, closed=closed)

    def restart(self, node: NodeId) -> None:
        """Boot a node again, if it is down and has not left."""
        host = self.hosts[node]
        if not host.up and not host.left:
            host.boot()

    def leave(self, node: NodeId) -> None:
        """Take a node away for good, its sockets closed in good order."""
        self.hosts[node].left = True
        self.crash(node, closed=True)

    def feed(self, node: NodeId, event: Event) -> bool:
        """Tell a node something from outside; return whether it was up to hear it."""
        host = self.hosts[node]
        if host.up:
            host.feed(event)
        return host.up

    def submit(self, node: NodeId, request: JobSubmitted | CancelRequested) -> bool:
        """Hand in a request of a client; return whether the node was up."""
        return self.feed(node, request)
