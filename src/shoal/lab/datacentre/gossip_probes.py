"""How news of free room spreads: how fast, and how accurate on arrival."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final, final

import msgspec
import numpy as np

from shoal.core.events import Effect, MessageReceived
from shoal.core.peer import Peer
from shoal.model.resources import WHOLE_GPU_MILLI
from shoal.protocol.messages import LoadDigests
from shoal.topology.routes import FAR

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.lab.datacentre.recorder import Recorder
    from shoal.model.ids import NodeId
    from shoal.protocol.messages import Load, Rumour
    from shoal.sim.agenda import Agenda
    from shoal.sim.node.host import SimHost
    from shoal.topology.routes import Routes

PROBES: Final = 12
"""Hosts whose news is followed on its way."""

REACHED: Final = 0.99
"""News has arrived when this share of the reachable hosts has heard it."""

PATIENCE_S: Final = 120.0
"""News that has not arrived by then never will."""

SAMPLE_S: Final = 5.0
OBSERVERS: Final = 16
SUBJECTS: Final = 32


class Probe(msgspec.Struct):
    """One piece of news: its version, its start, and when others heard it."""

    version: tuple[int, int]
    began: float
    wanted: int
    heard: dict[int, float] = msgspec.field(default_factory=dict[int, float])

    @property
    def enough(self) -> int:
        """How many must have heard it."""
        return max(1, int(REACHED * self.wanted))


@final
class GossipProbes:
    """Follows some news, and compares what hosts believe with the truth."""

    def __init__(
        self, agenda: Agenda, recorder: Recorder, routes: Routes, rng: Random
    ) -> None:
        self.delays: list[list[float]] = []  # of each probe: when hosts heard it
        self.converged_s: list[float] = []
        self.missed = 0  # probes that never reached enough
        self.views = 0
        self.wrong = 0
        self.wrong_age_s = 0.0
        self._agenda = agenda
        self._recorder = recorder
        self._routes = routes
        self._nodes = np.asarray(routes.fabric.hosts)
        self._rng = rng
        self._probes: dict[NodeId, Probe] = {}
        self._followed: dict[NodeId, None] = {}
        self._said: dict[NodeId, tuple[int, int]] = {}  # the last that each has said
        self._hosts: list[SimHost] = []

    def listen(self, hosts: Sequence[SimHost]) -> None:
        """Start to follow these hosts."""
        self._hosts = list(hosts)
        chosen = self._rng.sample(self._hosts, min(PROBES, len(self._hosts)))
        self._followed = dict.fromkeys(host.id for host in chosen)
        self._recorder.sent[LoadDigests] = self._on_sent
        self._recorder.told[LoadDigests] = self._on_told
        self._agenda.after(SAMPLE_S, self._sample)

    def finish(self) -> None:
        """Count news that has arrived, and news that had the time but did not."""
        for node, probe in list(self._probes.items()):
            late = self._agenda.now - probe.began >= PATIENCE_S
            if late or len(probe.heard) >= probe.enough:
                self._close(node)

    def _on_sent(self, host: SimHost, peer: NodeId, message: object) -> None:
        """Follow a chosen host's news from when it is first sent."""
        if host.id not in self._followed:
            return
        assert isinstance(message, LoadDigests)
        for rumour in message.rumours:
            if rumour.node == host.id:
                self._begin(host, rumour)

    def _begin(self, host: SimHost, rumour: Rumour) -> None:
        version = (rumour.epoch, rumour.seq)
        if self._said.get(host.id, (0, 0)) >= version:
            return  # It says again what others have heard before.
        self._said[host.id] = version
        probe = self._probes.get(host.id)
        if probe is not None:
            if self._agenda.now - probe.began < PATIENCE_S:
                return
            self._close(host.id)
        wanted = len(self._within_reach(host))
        if wanted:
            self._probes[host.id] = Probe(version, self._agenda.now, wanted)

    def _within_reach(self, host: SimHost) -> list[SimHost]:
        """Return the other hosts that are up and that a path leads to."""
        costs = self._routes.distances(
            self._routes.fabric.hosts[host.index], self._nodes
        )
        return [
            other
            for other, cost in zip(self._hosts, costs.tolist(), strict=True)
            if other.up and cost < FAR and other is not host
        ]

    def _on_told(
        self, host: SimHost, event: MessageReceived, effects: list[Effect]
    ) -> None:
        message = event.message
        assert isinstance(message, LoadDigests)
        for rumour in message.rumours:
            if rumour.node in self._probes:
                self._on_heard(host, rumour)

    def _on_heard(self, host: SimHost, rumour: Rumour) -> None:
        probe = self._probes[rumour.node]
        # A host that heard something later knows enough.
        if (rumour.epoch, rumour.seq) < probe.version or host.id == rumour.node:
            return
        if host.index not in probe.heard:
            probe.heard[host.index] = self._agenda.now - probe.began
            if len(probe.heard) >= probe.wanted:
                self._close(rumour.node)

    def _close(self, node: NodeId) -> None:
        probe = self._probes.pop(node)
        delays = sorted(probe.heard.values())
        self.delays.append([*delays, *[float("inf")] * (probe.wanted - len(delays))])
        if len(delays) >= probe.enough:
            self.converged_s.append(delays[probe.enough - 1])
        else:
            self.missed += 1

    def _sample(self) -> None:
        """Compare what some hosts heard of some others with the truth."""
        self._agenda.after(SAMPLE_S, self._sample)
        up = [host for host in self._hosts if host.up]
        now = self._agenda.now
        for host in self._rng.sample(up, min(OBSERVERS, len(up))):
            truths = {other.id: other for other in self._within_reach(host)}
            machine = host.machine
            assert isinstance(machine, Peer)
            assert machine.gossip is not None
            known = list(machine.gossip.known.values())
            for rumour in self._rng.sample(known, min(SUBJECTS, len(known))):
                subject = truths.get(rumour.node)
                if subject is None:
                    continue
                self.views += 1
                if not _is_true(rumour, subject):
                    self.wrong += 1
                    changed = self._recorder.changed_at.get(rumour.node, now)
                    self.wrong_age_s += now - changed


def _is_true(rumour: Rumour, subject: SimHost) -> bool:
    machine = subject.machine
    assert isinstance(machine, Peer)
    assert machine.worker is not None
    load: Load = machine.worker.load
    return (
        rumour.cpu_milli == load.cpu_milli
        and rumour.memory_bytes == load.memory_bytes
        and rumour.gpus == load.gpu_milli.count(WHOLE_GPU_MILLI)
    )
