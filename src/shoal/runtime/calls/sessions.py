"""Serve clients that call functions: one session per client.

A session is one client's stream. It has a pool for each kind of interpreter; the call
exchange schedules the pool's calls and lanes. Lanes are tasks of ordinary jobs that
the node submits in the client's name, so the queue, leases, priorities, quotas and
workers' rules apply to them as to any job. A session's jobs are cancelled when it
ends; jobs left from an earlier run of the node are cancelled at its start. While more
than `UNTOLD_BYTES_HIGH` of results wait for a client, its pools are slowed down.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, final

from shoal.core.calls.call_dispatcher import BacklogTold, CallsCame, StopsAsked
from shoal.core.calls.events import (
    AnswerCalls,
    CancelLanes,
    HireLanes,
    JournalSynced,
    PoolClosed,
    PoolOpened,
    PoolSlowed,
    PoolTold,
    TellPool,
)
from shoal.errors import UsageError
from shoal.protocol import call_items
from shoal.runtime.background_tasks import BackgroundTasks
from shoal.runtime.calls.lane_hiring import LaneHiring
from shoal.runtime.clients import Submitter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shoal.core.calls.call_dispatcher import Call, CallResult
    from shoal.core.events import Effect, Event
    from shoal.core.scheduling.scheduler import Scheduler
    from shoal.model.ids import JobId, OwnerId
    from shoal.runtime.artifacts.artifacts import Artifacts
    from shoal.runtime.clients import WaitingClients

DRIVER: Final = "python"
POOLS_MAX: Final = 64
SESSIONS_MAX: Final = 256
FUNCTIONS_BYTES_MAX: Final = 256 << 20
UNTOLD_BYTES_HIGH: Final = 32 << 20
"""Bytes of undelivered results above which a client's lanes must wait."""

IDLE_MAX_S: Final = 86_400.0
"""Longest time that an idle interpreter is kept."""

NEVER_S: Final = 15.0
"""How long other workers are looked for if no known one could run a call."""

RESULTS_PER_REPLY_MAX: Final = 2_048
REPLY_BYTES: Final = 4 << 20


class CallingNode(Protocol):
    """The part of a node that sessions use."""

    @property
    def scheduler(self) -> Scheduler | None:
        """The scheduler of this node."""
        ...

    @property
    def owner(self) -> OwnerId:
        """The default owner of lane jobs."""
        ...

    @property
    def clients(self) -> WaitingClients:
        """Submits and cancels jobs."""
        ...

    @property
    def artifacts(self) -> Artifacts:
        """Holds the files that lanes start with."""
        ...

    def feed(self, event: Event) -> None:
        """Tell the machine a fact."""
        ...

    def feed_now(self, event: Event) -> None:
        """Tell the machine a fact before returning, if it is idle."""
        ...


class PoolState(NamedTuple):
    """A pool's call credit, and its numbers of running and hired lanes."""

    id: int
    credit: int
    lanes: int
    hired: int


class SessionNews(NamedTuple):
    """One message to a client."""

    results: list[CallResult]
    pools: list[PoolState]


@final
class CallSessions:
    """All sessions of a node."""

    def __init__(self, node: CallingNode) -> None:
        self.node = node
        self._sessions: dict[str, CallSession] = {}
        self._names = 0
        self._pools: dict[str, CallSession] = {}  # by pool name, across sessions
        self._chores = BackgroundTasks()

    @property
    def performers(self) -> dict[type[Effect], Callable[..., None]]:
        """The performer of each effect."""
        return {
            AnswerCalls: self._answer,
            TellPool: self._tell,
            HireLanes: self._hire,
            CancelLanes: self._cancel_lanes,
        }

    def open(
        self,
        name: str,
        on_news: Callable[[], None],
        submitter: Submitter | None = None,
    ) -> CallSession:
        """Open a session that calls `on_news` when `take` has something.

        Its job ids begin with `name`; the submitter defaults to the node's user.
        """
        if self.node.scheduler is None or len(self._sessions) >= SESSIONS_MAX:
            raise UsageError(
                "this node calls no functions",
                because="it schedules nothing"
                if self.node.scheduler is None
                else f"{SESSIONS_MAX} clients do so already",
                hint="ask another node",
            )
        self._names += 1
        session = CallSession(
            self, f"{name}-{self._names}", on_news, submitter or Submitter()
        )
        self._sessions[session.name] = session
        return session

    async def clear(self) -> None:
        """Cancel lanes of earlier runs; returning clients get new ones."""
        scheduler = self.node.scheduler
        if scheduler is None:
            return
        stale = [
            record.job.id
            for record in scheduler.book.jobs.values()
            if record.state == "active"
            and any(task.work.driver == DRIVER for task in record.job.models())
        ]
        for job in stale:
            await self.node.clients.cancel(job, "the node was started again")

    def synced(self) -> None:
        """Tell the machine that the journal is on disk, if there are pools."""
        if self._pools:
            self.node.feed(JournalSynced())

    def register(self, pool: str, session: CallSession) -> None:
        """Route effects on a pool to `session`."""
        self._pools[pool] = session

    def end(self, session: CallSession, pools: Sequence[str]) -> None:
        """Forget a session and its pools."""
        self._sessions.pop(session.name, None)
        for pool in pools:
            del self._pools[pool]
            self.node.feed(PoolClosed(pool))

    async def close(self) -> None:
        """End all sessions."""
        for session in list(self._sessions.values()):
            session.close()
        await self._chores.close()

    def _answer(self, effect: AnswerCalls) -> None:
        if (session := self._pools.get(effect.pool)) is not None:
            session.answer(effect.results)

    def _tell(self, effect: TellPool) -> None:
        if (session := self._pools.get(effect.pool)) is not None:
            session.changed(effect)

    def _hire(self, effect: HireLanes) -> None:
        if (session := self._pools.get(effect.pool)) is not None:
            self._chores.start(session.hire(effect))

    def _cancel_lanes(self, effect: CancelLanes) -> None:
        self._chores.start(self._cancel(effect.jobs))

    async def _cancel(self, jobs: Sequence[JobId]) -> None:
        for job in jobs:
            await self.node.clients.cancel(job, "its client has gone")


@final
class CallSession:
    """One client. Its results wait until its stream fetches them by `take`."""

    def __init__(
        self,
        calls: CallSessions,
        name: str,
        on_news: Callable[[], None],
        submitter: Submitter,
    ) -> None:
        self.name = name
        self.submitter = submitter
        self.of = submitter.owner or calls.node.owner
        self._on_news = on_news
        self.functions: dict[int, list[bytes]] = {}
        self._calls = calls
        self._pools: dict[int, LaneHiring] = {}
        self._functions_bytes = 0
        self._results: list[CallResult] = []
        self._untold_bytes = 0
        self._states: dict[int, PoolState] = {}  # pool changes not sent yet
        self._slow = False
        self._closed = False

    # From the client.

    def open_pool(
        self, id_: int, spec: str, lanes_max: int, idle_s: float, never_s: float = 0.0
    ) -> None:
        """Open a pool of interpreters; do nothing if it is open."""
        if id_ in self._pools:
            return
        if len(self._pools) >= POOLS_MAX:
            raise UsageError(
                f"more than {POOLS_MAX} kinds of interpreters",
                because="each combination of options is a kind of its own",
                hint="use fewer combinations in one client",
            )
        node, name = self._calls.node, f"{self.name}-{id_}"
        hiring = self._pools[id_] = LaneHiring(node, name, spec, self.submitter)
        self._calls.register(name, self)
        most, idle_s = hiring.most(lanes_max), min(max(0.0, idle_s), IDLE_MAX_S)
        never_s = min(max(0.0, never_s), IDLE_MAX_S) or NEVER_S
        node.feed(PoolOpened(name, self.of, self.functions, most, idle_s, never_s))
        if self._slow:
            node.feed(PoolSlowed(name, slow=True))

    def define(self, id_: int, code: bytes) -> None:
        """Store a function for later calls."""
        self._functions_bytes += len(code)
        if self._functions_bytes > FUNCTIONS_BYTES_MAX:
            raise UsageError(
                "the functions of this client are too large together",
                because=f"the most is {FUNCTIONS_BYTES_MAX >> 20} MiB",
                hint="pass large values as arguments instead of by closures",
            )
        step = call_items.PART_BYTES
        self.functions[id_] = [
            call_items.item(call_items.FUNCTION, id_, code[start : start + step])
            for start in range(0, max(1, len(code)), step)
        ]

    def call(self, pool: int, calls: list[Call]) -> None:
        """Queue calls in a pool."""
        unknown = next(
            (c for c in calls if c.function and c.function not in self.functions), None
        )
        if unknown is not None:
            raise UsageError(
                f"call {unknown.id} names function {unknown.function}",
                because="no such function was sent",
                hint="send functions before the calls that name them",
            )
        self._tell(pool, CallsCame(calls))

    def stop(self, calls: tuple[int, ...]) -> None:
        """Interrupt calls."""
        for pool in self._pools:
            self._tell(pool, StopsAsked(calls))

    def backlog(self, pool: int, waiting: int) -> None:
        """Note how many calls the client still holds back."""
        self._tell(pool, BacklogTold(waiting))

    def take(self) -> SessionNews | None:
        """Return the next message to the client, if any."""
        if not self._results and not self._states:
            return None
        pools = list(self._states.values())
        self._states.clear()
        results = self._cut()
        self._untold_bytes -= sum(len(result.payload) for result in results)
        self._look_at_room()
        return SessionNews(results, pools)

    def close(self) -> None:
        """End the session and its lanes."""
        if self._closed:
            return
        self._closed = True
        self._calls.end(self, [hiring.pool for hiring in self._pools.values()])

    # From the machine.

    def answer(self, results: list[CallResult]) -> None:
        """Queue results for the client."""
        self._results += results
        self._untold_bytes += sum(len(result.payload) for result in results)
        self._look_at_room()
        self._on_news()

    def changed(self, effect: TellPool) -> None:
        """Queue a pool's new state for the client."""
        id_ = self._id_of(effect.pool)
        state = PoolState(id_, effect.credit, effect.lanes, effect.hired)
        self._states[id_] = state
        self._on_news()

    async def hire(self, effect: HireLanes) -> None:
        """Hire more interpreters for a pool."""
        await self._pools[self._id_of(effect.pool)].hire(effect.count)

    def _tell(self, id_: int, told: CallsCame | BacklogTold | StopsAsked) -> None:
        hiring = self._pools.get(id_)
        if hiring is None:
            raise UsageError(
                f"a call names pool {id_}",
                because="no such pool was opened",
                hint="open pools before the calls that name them",
            )
        self._calls.node.feed_now(PoolTold(hiring.pool, told))

    def _id_of(self, pool: str) -> int:
        return int(pool.removeprefix(f"{self.name}-"))

    def _cut(self) -> list[CallResult]:
        """Remove and return results for one message, at least one."""
        size = 0
        for place, result in enumerate(self._results):
            size += len(result.payload)
            if place and (size > REPLY_BYTES or place >= RESULTS_PER_REPLY_MAX):
                taken, self._results = self._results[:place], self._results[place:]
                return taken
        taken, self._results = self._results, []
        return taken

    def _look_at_room(self) -> None:
        slow = self._untold_bytes > UNTOLD_BYTES_HIGH
        if slow != self._slow:
            self._slow = slow
            for hiring in self._pools.values():
                self._calls.node.feed(PoolSlowed(hiring.pool, slow))
