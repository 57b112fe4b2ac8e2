"""Simulate a client that calls functions, and its interpreters.

Interpreters are processes of ordinary jobs. They follow `protocol.call_items` as
`drivers/lane.py` does: they run one call after another and return calls that have not
begun; some calls kill them. A client whose node crashes repeats the calls that have no
result.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.core.calls.call_dispatcher import BacklogTold, Call, CallsCame
from shoal.core.calls.events import (
    AnswerCalls,
    CancelLanes,
    HireLanes,
    JournalSynced,
    LaneDown,
    LanesAccepted,
    LanesHired,
    LanesRefused,
    LaneUp,
    LaneWrote,
    PauseLane,
    PoolClosed,
    PoolOpened,
    PoolTold,
    TellPool,
    WriteLane,
)
from shoal.model.ids import Attempt, JobId, NodeId, OwnerId
from shoal.model.job import Job, Retry
from shoal.model.resources import Profile
from shoal.protocol import call_items
from shoal.sim.calls.promises import CallPromises, value_of
from shoal.sim.node.driver import Behaviour, SimProcess
from shoal.sim.workload import Errand, make_group

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.core.durability.journal import Entry
    from shoal.core.events import Answer
    from shoal.sim.clients import SimClients
    from shoal.sim.node.host import PerformAt, SimHost
    from shoal.sim.world import World

CALLS_SHARE: Final = 0.08  # share of worlds with such a client
LANE_S: Final = 900.0
"""Longest run of an interpreter; it is told to leave before."""

SESSIONS_MAX: Final = 4
POISON_SHARE: Final = 0.05  # share of calls that kill their interpreter
SMALL: Final = Profile(cpu_milli=100)
OWNER: Final = OwnerId("ann")


class CallScript(msgspec.Struct, frozen=True, kw_only=True):
    """What a world's client does."""

    scheduler: NodeId
    at_s: float
    calls: int
    lanes_max: int
    retries: int
    call_s: float


def draw_calls(
    rng: Random, schedulers: list[NodeId], heal_s: float
) -> CallScript | None:
    """Draw a client that calls functions, in some worlds."""
    if rng.random() >= CALLS_SHARE:
        return None
    return CallScript(
        scheduler=rng.choice(schedulers),
        at_s=rng.uniform(1.0, heal_s * 0.7),
        calls=rng.randint(20, 80),
        lanes_max=rng.randint(1, 4),
        retries=rng.randint(0, 3),
        call_s=rng.choice((0.01, 0.2, 1.0)),
    )


@final
class SimLane:
    """One interpreter: its waiting calls, and whether it must leave."""

    def __init__(self, host: SimHost, process: SimProcess) -> None:
        self.host = host
        self.life = host.life
        self.process = process
        self.waiting: deque[int] = deque()
        self.busy = False
        self.leaving = False

    @property
    def attempt(self) -> Attempt:
        """The interpreter's attempt."""
        return self.process.start.attempt

    @property
    def alive(self) -> bool:
        """Whether it runs and its node is up."""
        return (
            self.host.up
            and self.host.life == self.life
            and self.process.exit_code is None
            and self.process.pid in self.host.driver.processes
        )


@final
class CallTraffic:
    """The client and its interpreters."""

    def __init__(
        self,
        script: CallScript,
        world: World,
        clients: SimClients,
        jobs: dict[JobId, Job],
        promises: CallPromises,
    ) -> None:
        """Submit interpreters through `clients`; register their jobs in `jobs`."""
        self.promises = promises
        self._script = script
        self._world = world
        self._clients = clients
        self._jobs = jobs
        self._rng = world.stream("calls")
        self._lanes: dict[Attempt, SimLane] = {}
        self._sessions = 0
        self._hires = 0
        self._life = -1  # of the client's node when the session began
        self._credit = 0
        self._to_send: deque[int] = deque(range(1, script.calls + 1))
        self._out: dict[int, None] = {}
        self._last = script.calls
        self._poison: dict[int, None] = {}
        self._synced = False
        for call in self._to_send:
            self._make(call)

    @property
    def performers(self) -> dict[type, PerformAt]:
        """The performer of each effect of the call exchange."""
        return {
            WriteLane: self._write,
            PauseLane: _ignore,
            AnswerCalls: self._answer,
            TellPool: self._tell,
            HireLanes: self._hire,
            CancelLanes: self._cancel,
        }

    def begin(self) -> None:
        """Schedule the client's arrival."""
        self._world.agenda.at(self._script.at_s, self._visit)

    def safe(self, host: SimHost, _entries: Sequence[Entry]) -> None:
        """Tell the client's node that its journal is on disk."""
        if host.id == self._script.scheduler and not self._synced:
            self._synced = True
            self._world.agenda.after(0.0, self._tell_synced)

    # The client.

    @property
    def _pool(self) -> str:
        return f"c{self._sessions}"

    @property
    def _host(self) -> SimHost:
        return self._world.hosts[self._script.scheduler]

    def _make(self, call: int) -> None:
        self.promises.made(call, self._script.retries)
        if self._rng.random() < POISON_SHARE:
            self._poison[call] = None

    def _visit(self) -> None:
        """Open a session unless there is a live one; check again later."""
        host = self._host
        if not self._to_send and not self._out:
            return
        if host.up and self._life != host.life:
            self._open(host)
        self._world.agenda.after(1.0, self._visit)

    def _open(self, host: SimHost) -> None:
        """Begin a session; repeat unanswered calls of an earlier one."""
        for call in self._out:
            self.promises.abandoned(call)
        again = len(self._out) if self._sessions < SESSIONS_MAX else 0
        if self._sessions >= SESSIONS_MAX:
            for call in self._to_send:
                self.promises.abandoned(call)
            self._to_send.clear()
        self._out.clear()
        for _ in range(again):
            self._last += 1
            self._make(self._last)
            self._to_send.append(self._last)
        self._cancel_stale()
        if not self._to_send:
            return
        self._sessions += 1
        self._life = host.life
        self._credit = 0
        functions = {1: [call_items.item(call_items.FUNCTION, 1, b"code")]}
        most = self._script.lanes_max
        host.feed(PoolOpened(self._pool, OWNER, functions, most, 5.0))

    def _cancel_stale(self) -> None:
        for job in list(self._clients.orders):
            if job.startswith("c"):
                self._clients.cancel(job)

    def _tell(self, host: SimHost, effect: TellPool) -> None:
        if effect.pool == self._pool:
            self._credit = effect.credit
            self._world.agenda.after(0.0, self._send, host, host.life)

    def _send(self, host: SimHost, life: int) -> None:
        if not host.up or host.life != life or life != self._life:
            return
        calls: list[Call] = []
        while self._to_send and len(self._out) < self._credit:
            call = self._to_send.popleft()
            self._out[call] = None
            calls.append(Call(call, 1, (b"x",), self._script.retries, size=1))
        if calls:
            host.feed(PoolTold(self._pool, CallsCame(calls)))
            host.feed(PoolTold(self._pool, BacklogTold(len(self._to_send))))

    def _answer(self, host: SimHost, effect: AnswerCalls) -> None:
        if effect.pool != self._pool:
            return
        for result in effect.results:
            self.promises.came(result)
            self._out.pop(result.id, None)
        if self._out or self._to_send:
            self._world.agenda.after(0.0, self._send, host, host.life)
        else:
            self._world.agenda.after(0.0, self._close, host, host.life)

    def _close(self, host: SimHost, life: int) -> None:
        if host.up and host.life == life:
            host.feed(PoolClosed(self._pool))

    # Interpreters are hired as tasks.

    def _hire(self, host: SimHost, effect: HireLanes) -> None:
        self._world.agenda.after(0.0, self._submit, host, host.life, effect)

    def _submit(self, host: SimHost, life: int, effect: HireLanes) -> None:
        if not host.up or host.life != life:
            return
        self._hires += 1
        name = JobId(f"c{self._hires}")
        group = make_group(name, "main", effect.count, (SMALL,))
        job = Job(id=name, owner=OWNER, groups=(group,), retry=Retry(max=0))
        tasks = tuple(task.id for task in job.tasks())
        self._jobs[name] = job
        for task in tasks:
            self._world.plans[task] = Behaviour(run_s=LANE_S, lane=True)
        host.feed(LanesHired(effect.pool, name, tasks))

        def submitted(answer: Answer) -> None:
            if not host.up or host.life != life:
                self._clients.cancel(name)
            elif answer.refused:
                refused = LanesRefused(effect.pool, effect.count, answer.refused, tasks)
                self._world.agenda.after(0.0, host.feed, refused)
            else:
                accepted = LanesAccepted(effect.pool, name, tasks)
                self._world.agenda.after(0.0, host.feed, accepted)

        errand = Errand(job=job, scheduler=host.id, at_s=self._world.now)
        self._clients.go(errand, submitted)

    def _cancel(self, _host: SimHost, effect: CancelLanes) -> None:
        for job in effect.jobs:
            self._clients.cancel(job)

    def _tell_synced(self) -> None:
        self._synced = False
        self._host.feed(JournalSynced())

    # Interpreters.

    def started(self, host: SimHost, process: SimProcess) -> None:
        """Connect an interpreter to its node."""
        if process.behaviour.lane:
            lane = self._lanes[process.start.attempt] = SimLane(host, process)
            self._world.agenda.after(0.01, self._connect, lane)

    def reaped(self, host: SimHost, process: SimProcess) -> None:
        """Tell a node that an interpreter ended."""
        if process.behaviour.lane:
            del self._lanes[process.start.attempt]
            host.feed(LaneDown(process.start.attempt))

    def _connect(self, lane: SimLane) -> None:
        if lane.alive:
            lane.host.feed(LaneUp(lane.attempt, lane.process.start.task.id))
            ready = call_items.item(call_items.READY, 0)
            lane.host.feed(LaneWrote(lane.attempt, [ready]))

    def _write(self, _host: SimHost, effect: WriteLane) -> None:
        lane = self._lanes.get(effect.attempt)
        if lane is not None:
            self._world.agenda.after(0.0, self._take, lane, effect.items)

    def _take(self, lane: SimLane, items: list[bytes]) -> None:
        """Let an interpreter handle items."""
        if not lane.alive:
            return
        back: list[int] = []
        for data in items:
            kind, number = call_items.head(data)
            if kind == call_items.CALL:
                (back if lane.leaving else lane.waiting).append(number)
            elif kind == call_items.RECALL:
                count = min(number, len(lane.waiting))
                back += [lane.waiting.pop() for _ in range(count)]
            elif kind == call_items.LEAVE:
                lane.leaving = True
                back += lane.waiting
                lane.waiting.clear()
        if back:
            given = [call_items.item(call_items.BACK, number) for number in back]
            lane.host.feed(LaneWrote(lane.attempt, given))
        self._work(lane)

    def _work(self, lane: SimLane) -> None:
        if not lane.alive or lane.busy:
            return
        if lane.waiting:
            lane.busy = True
            call = lane.waiting.popleft()
            self.promises.began(call)
            run_s = self._script.call_s * self._rng.uniform(0.5, 1.5)
            self._world.agenda.after(run_s, self._finish, lane, call)
        elif lane.leaving:
            lane.host.driver.exit(lane.process, 0)

    def _finish(self, lane: SimLane, call: int) -> None:
        if not lane.alive:
            return
        lane.busy = False
        if call in self._poison:
            lane.host.driver.exit(lane.process, 1)
            return
        value = call_items.item(call_items.VALUE, call, value_of(call))
        lane.host.feed(LaneWrote(lane.attempt, [value]))
        self._work(lane)


def _ignore(host: SimHost, effect: PauseLane) -> None:
    """Ignore it: simulated results are small."""
