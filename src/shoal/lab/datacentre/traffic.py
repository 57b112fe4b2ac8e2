"""The traffic between tasks, and how long it takes over shared links.

Before it works, a task fetches its files from the host where its job was submitted.
The tasks of a gang then compute and all-reduce in turn, along a ring of its ranks, all
at one speed: that of the slowest part. The traffic of a ring is spread evenly over its
steps, so what it asks of links is its average, and it never asks for more than it could
use. A task that is told to stop keeps what it has done; one that crashes loses it. A
gang that saves checkpoints always keeps what it saved, and no more.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final, final

import msgspec
import numpy as np

from shoal.core.events import TaskSaved
from shoal.sim.node.driver import SIGTERM_CODE
from shoal.topology.sharing import Floats, Sharing

if TYPE_CHECKING:
    from shoal.lab.datacentre.host_kinds import DealtHosts
    from shoal.lab.datacentre.jobs import DrawnJob
    from shoal.model.ids import GroupId, JobId, NodeId, TaskId
    from shoal.sim.agenda import Agenda
    from shoal.sim.node.driver import SimProcess
    from shoal.sim.node.host import SimHost
    from shoal.topology.routes import Routes

Member = tuple[int, int]
"""A process, by the host it runs on and its number there."""

Try = tuple["GroupId", int, int]
Done = Callable[[], None]

STALE_MAX: Final = 64
"""Ends that no longer hold and may wait in the heap, beyond one for each flow."""


class _Flow(msgspec.Struct, eq=False):
    """A transfer: the bytes `left`, and the pairs of hosts it goes between."""

    pairs: tuple[tuple[int, int], ...]  # nodes of the fabric
    left: float
    most: float
    done: Done
    rate: float = 0.0
    since: float = 0.0
    version: int = 0


class _Gang(msgspec.Struct, eq=False):
    """Tasks that proceed together, once the last of them is ready."""

    job: JobId
    size: int
    ready: dict[Member, tuple[int, Done]] = msgspec.field(
        default_factory=dict[Member, tuple[int, Done]]
    )  # the node of each, and what to call at the end
    flow: int | None = None
    began: float = 0.0  # when all were ready
    run_s: float = 0.0  # how long it takes from there, if it needs no link
    speed: float = 1.0  # that of its slowest host
    saver: tuple[SimHost, SimProcess] | None = None  # its first rank


class _Solo(msgspec.Struct, frozen=True):
    """A task that works alone: since when, and how long it will take."""

    began: float
    run_s: float


@final
class Traffic:
    """Moves bytes for all tasks of one world."""

    def __init__(
        self,
        agenda: Agenda,
        routes: Routes,
        nodes: dict[NodeId, int],
        drawn: dict[JobId, DrawnJob],
        hosts: DealtHosts,
    ) -> None:
        links = routes.fabric.links
        self.sharing = Sharing([link.bandwidth_bps / 8 for link in links for _ in "ab"])
        self.carried: Floats = np.zeros(2 * len(links))  # bytes over each direction
        self.moved_bytes = 0.0  # between hosts
        self.crossed_bytes = 0.0  # of these, between leaves
        self._agenda = agenda
        self._routes = routes
        self._nodes = nodes
        self._drawn = drawn
        self._hosts = hosts
        places = {node: place for place, node in enumerate(routes.fabric.hosts)}
        self._places = places  # of nodes of the fabric, among hosts
        self._flows: dict[int, _Flow] = {}
        self._flow_seq = 0
        self._counted_at = 0.0
        self._settling = False
        self._ends: list[tuple[float, int, int]] = []  # when, flow, version
        self._wake_at = float("inf")
        self._staging: dict[Member, int] = {}
        self._gangs: dict[Try, _Gang] = {}
        self._solos: dict[Member, _Solo] = {}
        # Of the tasks, or of the jobs that are gangs, that were told to stop.
        self._share_left: dict[TaskId | JobId, float] = {}

    # What hosts tell.

    def pacing(
        self, host: SimHost, process: SimProcess, run_s: float, done: Done
    ) -> None:
        """Let a process work: fetch its files, then compute."""
        task = process.start.task
        drawn_job = self._drawn[task.job]
        member = (host.index, process.pid)
        here, home = self._nodes[host.id], self._nodes[process.start.attempt.scheduler]
        work = partial(self._work, host, process, here, run_s, done)
        if drawn_job.kind.stage_bytes == 0 or here == home:
            work()
            return
        fetched = partial(self._fetched, member, work)
        self._staging[member] = self._begin(
            ((home, here),), drawn_job.kind.stage_bytes, fetched
        )

    def reaped(self, host: SimHost, process: SimProcess) -> None:
        """End what a process was doing."""
        member = (host.index, process.pid)
        task = process.start.task
        told = process.exit_code == SIGTERM_CODE
        staging = self._staging.pop(member, None)
        if staging is not None:
            self._end(staging)
        solo = self._solos.pop(member, None)
        if solo is not None and told and solo.run_s > 0:
            done = (self._agenda.now - solo.began) / solo.run_s
            left = self._share_left.get(task.id, 1.0)
            self._share_left[task.id] = left * max(0.0, 1.0 - done)
        try_ = _try_of(process)
        gang = self._gangs.get(try_)
        if gang is not None and member in gang.ready:
            self._break(try_, gang, told=told)

    def fabric_changed(self) -> None:
        """Reroute every flow over the paths that work now."""
        self._count()
        for id_, flow in self._flows.items():
            self.sharing.remove(id_)
            self._place(id_, flow)
        self._settle_soon()

    def finish(self) -> None:
        """Count what was carried until now."""
        self._count()

    # Work.

    def _fetched(self, member: Member, work: Done) -> None:
        del self._staging[member]
        work()

    def _work(
        self, host: SimHost, process: SimProcess, here: int, run_s: float, done: Done
    ) -> None:
        task, member = process.start.task, (host.index, process.pid)
        kind = self._drawn[task.job].kind
        if not kind.gang or task.size == 1:
            speed = kind.speed_on(self._hosts[host.index])
            left_s = run_s * self._share_left.get(task.id, 1.0) / speed
            self._solos[member] = _Solo(self._agenda.now, left_s)
            self._agenda.after(left_s, done)
            return
        try_ = _try_of(process)
        gang = self._gangs.get(try_)
        if gang is None:
            size = len(process.start.gang)
            gang = self._gangs[try_] = _Gang(job=task.job, size=size)
        gang.ready[member] = (here, done)
        if task.index == 0:
            gang.saver = host, process
        assert len(gang.ready) <= gang.size
        if len(gang.ready) == gang.size:
            self._start(try_, gang, run_s)

    def _start(self, try_: Try, gang: _Gang, run_s: float) -> None:
        """Begin the steps of a gang whose ranks are all there."""
        kind = self._drawn[gang.job].kind
        left = self._share_left.get(gang.job, 1.0)
        ranks = sorted(node for node, _ in gang.ready.values())
        gang.speed = min(
            kind.speed_on(self._hosts[self._places[node]]) for node in ranks
        )  # They wait for the slowest at every step.
        ring = [(a, b) for a, b in zip(ranks, ranks[1:] + ranks[:1], strict=True)]
        pairs = tuple((a, b) for a, b in ring if a != b)
        over = partial(self._over, try_, gang)
        gang.began, gang.run_s = self._agenda.now, run_s * left / gang.speed
        if kind.checkpoint_s:
            self._agenda.after(kind.checkpoint_s, self._save, try_, gang)
        each_bytes = 2 * (gang.size - 1) / gang.size * kind.allreduce_bytes
        if not pairs or each_bytes == 0:
            self._agenda.after(gang.run_s, over)
            return
        steps = run_s / kind.step_s
        alone = self._alone(pairs)
        step_s = kind.step_s / gang.speed
        most = each_bytes / (step_s + each_bytes / alone) if alone else 0.0
        gang.flow = self._begin(pairs, steps * each_bytes * left, over, most)

    def _over(self, try_: Try, gang: _Gang) -> None:
        if self._gangs.get(try_) is not gang:
            return  # It fell apart before.
        del self._gangs[try_]
        self._share_left.pop(gang.job, None)
        for _, done in gang.ready.values():
            done()

    def _save(self, try_: Try, gang: _Gang) -> None:
        """Save a checkpoint of a gang, and let its scheduler know; and so on."""
        if self._gangs.get(try_) is not gang:
            return
        left = self._left_of(gang)
        if left is not None:
            self._share_left[gang.job] = left
            if gang.saver is not None:
                host, process = gang.saver
                tree = host.staging.make(f"{gang.job} {left}")
                host.feed(TaskSaved(process.start.attempt, tree, "checkpoint"))
        pause_s = self._drawn[gang.job].kind.checkpoint_s
        assert pause_s is not None
        self._agenda.after(pause_s, self._save, try_, gang)

    def _break(self, try_: Try, gang: _Gang, *, told: bool) -> None:
        """Stop a gang that lost a rank; its scheduler will stop the others."""
        del self._gangs[try_]
        if gang.flow is None:
            return
        left = self._left_of(gang)
        saves = self._drawn[gang.job].kind.checkpoint_s
        if told and left is not None and not saves:
            self._share_left[gang.job] = left
        self._end(gang.flow)

    def _left_of(self, gang: _Gang) -> float | None:
        """Return the share of a gang's work that is left; None if it cannot be had."""
        drawn_job = self._drawn[gang.job]
        if gang.flow is None:
            done_s = self._agenda.now - gang.began
            return max(0.0, gang.run_s - done_s) * gang.speed / drawn_job.run_s
        flow = self._flows[gang.flow]
        self._advance(flow)
        if flow.most <= 0:
            return None
        each = 2 * (gang.size - 1) / gang.size * drawn_job.kind.allreduce_bytes
        return min(1.0, flow.left / (drawn_job.run_s / drawn_job.kind.step_s * each))

    # Flows.

    def _alone(self, pairs: tuple[tuple[int, int], ...]) -> float:
        """Return the speed of a ring that has the fabric to itself."""
        links = self._links_of(pairs, 0)
        if links is None:
            return 0.0
        used = np.bincount(links, minlength=len(self.carried))
        speeds = self.sharing.capacities[used > 0] / used[used > 0]
        return float(speeds.min())

    def _links_of(
        self, pairs: tuple[tuple[int, int], ...], flow: int
    ) -> list[int] | None:
        links: list[int] = []
        for number, (a, b) in enumerate(pairs):
            path = self._routes.path(a, b, flow * 4_099 + number)
            if path is None:
                return None
            links += path
        return links

    def _begin(
        self,
        pairs: tuple[tuple[int, int], ...],
        size: float,
        done: Done,
        most: float = float("inf"),
    ) -> int:
        self._flow_seq += 1
        flow = _Flow(pairs, size, most, done, since=self._agenda.now)
        self._flows[self._flow_seq] = flow
        self._place(self._flow_seq, flow)
        self._settle_soon()
        return self._flow_seq

    def _place(self, id_: int, flow: _Flow) -> None:
        links = self._links_of(flow.pairs, id_)
        if links is None:
            self.sharing.add(id_, (), 0.0)  # Nothing comes through.
        else:
            self.sharing.add(id_, links, flow.most)

    def _end(self, id_: int) -> None:
        flow = self._flows.pop(id_)
        self._advance(flow)
        self.sharing.remove(id_)
        self._settle_soon()

    def _advance(self, flow: _Flow) -> None:
        """Bring up to date how much of a flow is left, and what it has moved."""
        now = self._agenda.now
        moved = min(flow.left, flow.rate * (now - flow.since))
        flow.since = now
        if moved <= 0:
            return
        flow.left -= moved
        anchor = self._routes.anchor
        crossing = sum(anchor(a) != anchor(b) for a, b in flow.pairs)
        self.moved_bytes += moved * len(flow.pairs)
        self.crossed_bytes += moved * crossing

    def _settle_soon(self) -> None:
        """Share links anew after the last event of this moment."""
        if not self._settling:
            self._settling = True
            self._agenda.after(0.0, self._settle)

    def _settle(self) -> None:
        self._settling = False
        self._count()
        now = self._agenda.now
        for id_, rate in self.sharing.settle().items():
            flow = self._flows[id_]
            self._advance(flow)
            flow.rate = rate
            flow.version += 1
            if rate > 0:
                heappush(self._ends, (now + flow.left / rate, id_, flow.version))
        if len(self._ends) > 2 * len(self._flows) + STALE_MAX:
            self._ends = [end for end in self._ends if self._holds(end)]
            heapify(self._ends)
        self._wake_later()

    def _holds(self, end: tuple[float, int, int]) -> bool:
        flow = self._flows.get(end[1])
        return flow is not None and flow.version == end[2]

    def _wake_later(self) -> None:
        while self._ends and not self._holds(self._ends[0]):
            heappop(self._ends)
        if self._ends and self._ends[0][0] < self._wake_at:
            self._wake_at = self._ends[0][0]
            self._agenda.at(self._wake_at, self._wake, self._wake_at)

    def _wake(self, at: float) -> None:
        if at != self._wake_at:
            return
        self._wake_at = float("inf")
        while self._ends and self._ends[0][0] <= self._agenda.now:
            end = heappop(self._ends)
            if self._holds(end):
                flow = self._flows[end[1]]
                self._end(end[1])
                flow.done()
        self._wake_later()

    def _count(self) -> None:
        now = self._agenda.now
        if now > self._counted_at:
            self.carried += self.sharing.loads * (now - self._counted_at)
            self._counted_at = now


def _try_of(process: SimProcess) -> Try:
    """Return the key of a gang's attempt, which all its tasks share.

    They are assigned in one go, in the order of their ranks.
    """
    task, attempt = process.start.task, process.start.attempt
    return task.group, attempt.generation, attempt.sequence - task.index
