"""Record what happens in a data centre: jobs, devices, queues, messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.core.durability.journal import Entry, Finished
from shoal.protocol.messages import Refusal, Report
from shoal.sim.node.host import HostWatch, SimHost

if TYPE_CHECKING:
    from shoal.core.events import Answer
    from shoal.lab.datacentre.jobs import DrawnJob
    from shoal.lab.datacentre.traffic import Traffic
    from shoal.model.ids import Attempt, JobId, NodeId
    from shoal.protocol.messages import AnyMessage
    from shoal.sim.agenda import Agenda
    from shoal.sim.clients import SimClients
    from shoal.sim.node.driver import SimProcess
    from shoal.topology.routes import Routes

BARS_MAX: Final = 20_000
"""Bars kept for the picture of who ran where; a report never shows more."""


class Bar(msgspec.Struct, gc=False):
    """A task on devices of one host, from its start to its end."""

    job: JobId
    host: int
    devices: tuple[int, ...]
    began: float
    ended: float = -1.0
    cut: bool = False  # it was stopped or lost, and did not end of itself
    width: float = 0.0  # devices, or CPUs where hosts have none


class JobLife(msgspec.Struct):
    """The times of one job."""

    submitted: float
    tasks: int
    started: float = -1.0  # the first of its tasks, for the first time
    ended: float = -1.0
    failed: bool = False
    open: int = 0


class SeriesPoint(msgspec.Struct, gc=False, frozen=True):
    """A sample: waiting tasks and devices in use."""

    at: float
    waiting: int
    busy: float  # devices, shares added up; CPUs where hosts have none


@final
class Meter:
    """Routes messages over the fabric, and counts their bytes."""

    def __init__(self, routes: Routes) -> None:
        self.counts: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self._routes = routes
        self._hosts = routes.fabric.hosts
        self._encoder = msgspec.msgpack.Encoder()
        self._last: tuple[AnyMessage | None, int] = (None, 0)

    def latency_s(self, src: int, dst: int) -> float | None:
        """Return the latency between two hosts, by their places."""
        cost_ns = self._routes.distance(self._hosts[src], self._hosts[dst])
        return None if cost_ns is None else cost_ns * 1e-9

    def carried(self, src: int, dst: int, message: AnyMessage) -> None:
        """Count a message and its bytes."""
        last, size = self._last
        if message is not last:
            size = len(self._encoder.encode(message))
            self._last = (message, size)
        kind = type(message).__name__
        self.counts[kind] += 1
        self.bytes[kind] += size


@final
class Recorder(HostWatch):
    """Records what a report is made of."""

    def __init__(
        self,
        agenda: Agenda,
        drawn: Sequence[DrawnJob],
        traffic: Traffic,
        devices: dict[str, int],
        services: Collection[JobId] = (),
    ) -> None:
        super().__init__()
        self.lives = {t.job: JobLife(t.at_s, t.kind.tasks) for t in drawn}
        self.bars: list[Bar] = []
        self.points: list[SeriesPoint] = []
        self.busy_s = 0.0  # devices times seconds
        self.refusals = 0
        self.starts = 0
        self.ended = 0
        self.changed_at: dict[NodeId, float] = {}  # when each host's room last changed
        self.clients: SimClients | None = None
        self._agenda = agenda
        self._traffic = traffic
        self._devices = devices
        self.replicas: list[Bar] = []  # of services, all of them
        self._services = services
        self._running: dict[tuple[int, int], Bar] = {}
        self._displaced: dict[Attempt, None] = {}
        self._arrived = 0
        self._over = 0
        self._busy = 0.0
        self._busy_at = 0.0
        self.sent[Report] = self._on_report
        self.sent[Refusal] = self._on_refusal

    @property
    def preemptions(self) -> int:
        """How many tasks were preempted."""
        return len(self._displaced)

    def submitted(self, job: JobId) -> None:
        """Note that a client has submitted a job."""
        life = self.lives[job]
        life.open = life.tasks
        self._arrived += life.tasks
        self._point()

    def started(self, host: SimHost, process: SimProcess) -> None:
        """Note which task occupies which devices."""
        task = process.start.task
        shares = process.start.allocation.shares
        width = sum(share.milli for share in shares) / 1_000
        if not self._devices:
            width = process.start.allocation.cpu_milli / 1_000
        places = tuple(self._devices[share.device] for share in shares)
        bar = Bar(task.job, host.index, places, self._agenda.now, width=width)
        if len(self.bars) < BARS_MAX:
            self.bars.append(bar)
        if task.job in self._services:
            self.replicas.append(bar)
        self._running[host.index, process.pid] = bar
        self.starts += 1
        life = self.lives[task.job]
        if life.started < 0:
            life.started = self._agenda.now
        self.changed_at[host.id] = self._agenda.now
        self._use(width)

    def reaped(self, host: SimHost, process: SimProcess) -> None:
        """Note that devices are free again."""
        bar = self._running.pop((host.index, process.pid))
        bar.ended = self._agenda.now
        bar.cut = process.exit_code != 0
        self.changed_at[host.id] = self._agenda.now
        self._traffic.reaped(host, process)
        self._use(-bar.width)

    def safe(self, host: SimHost, entries: Sequence[Entry]) -> None:
        """Note which jobs have ended."""
        for entry in entries:
            if isinstance(entry, Finished):
                self._on_finished(entry)

    def answered(self, host: SimHost, answer: Answer) -> None:
        """Pass on what a client was told."""
        assert self.clients is not None
        self.clients.on_answer(answer)

    def finish(self) -> None:
        """Count what is in use until now."""
        self._use(0.0)
        for bar in self._running.values():
            bar.ended, bar.cut = self._agenda.now, True

    def _on_finished(self, entry: Finished) -> None:
        life = self.lives[_job_of(entry.task)]
        if life.open == 0:
            return
        life.open -= 1
        self._over += 1
        life.failed = life.failed or entry.state != "done"
        if life.open == 0:
            life.ended = self._agenda.now
            self.ended += 1
        self._point()

    def _use(self, more: float) -> None:
        now = self._agenda.now
        self.busy_s += self._busy * (now - self._busy_at)
        self._busy += more
        self._busy_at = now
        self._point()

    def _point(self) -> None:
        now = self._agenda.now
        waiting = max(0, self._arrived - self._over - len(self._running))
        if self.points and self.points[-1].at == now:
            self.points.pop()
        self.points.append(SeriesPoint(now, waiting, self._busy))

    def _on_report(self, host: SimHost, peer: NodeId, message: object) -> None:
        """Count preempted tasks once: reports are repeated."""
        assert isinstance(message, Report)
        if message.outcome.kind == "preempted":
            self._displaced[message.attempt] = None

    def _on_refusal(self, host: SimHost, peer: NodeId, message: object) -> None:
        self.refusals += 1


def _job_of(task: str) -> JobId:
    return task.rsplit(".", 2)[0]  # type: ignore[return-value]
