"""Calls of functions by the clients of this node: sessions, and pools of lanes.

A session is one client's stream. It has pools, one for each kind of interpreter, and a
pool has its own `Switchboard` that decides. Lanes are tasks of ordinary jobs, which the
node submits in the name of the client: the queue, leases, priorities, quotas and
workers' rules hold for them as for any other. The jobs of a session are cancelled when
it ends, and those of an earlier life of the node when it starts.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, final

from shoal.errors import UsageError
from shoal.model.ids import JobId
from shoal.protocol import call_items
from shoal.protocol.batches import CallBatch
from shoal.runtime.clients import Submitter
from shoal.runtime.pool import Pool

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shoal.core.calls import Call, Result
    from shoal.core.jobs import JobBook
    from shoal.core.membership import Admission
    from shoal.core.scheduler import Scheduler
    from shoal.model.ids import NodeId, OwnerId, TaskId
    from shoal.protocol.batches import ResultBatch
    from shoal.protocol.messages import AnyMessage
    from shoal.runtime.clients import Clients

    Send = Callable[[NodeId, AnyMessage], None]

DRIVER: Final = "python"
POOLS_MAX: Final = 64
SESSIONS_MAX: Final = 256
FUNCTIONS_BYTES_MAX: Final = 256 << 20
UNTOLD_BYTES_HIGH: Final = 32 << 20
"""Results that wait for one client before its lanes have to wait."""

UNLINKED_S: Final = 3.0
"""How long a worker may be out of reach before its calls are run elsewhere."""

RESULTS_PER_REPLY_MAX: Final = 2_048
REPLY_BYTES: Final = 4 << 20


class CallingNode(Protocol):
    """What calls need of the node."""

    @property
    def scheduler(self) -> Scheduler | None:
        """The scheduler of this node."""
        ...

    @property
    def owner(self) -> OwnerId:
        """In whose name the jobs of lanes are submitted."""
        ...

    @property
    def clients(self) -> Clients:
        """Hands jobs in."""
        ...

    def admission(self, peer: NodeId) -> Admission | None:
        """Return what a member that we have met may do now."""
        ...


class PoolState(NamedTuple):
    """How many calls a client may have out, and how many lanes run or are hired."""

    id: int
    credit: int
    lanes: int
    hired: int


class News(NamedTuple):
    """What a client is told at a time."""

    results: list[Result]
    pools: list[PoolState]


@final
class Calls:
    """All sessions of a node."""

    def __init__(self, node: CallingNode, send: Send) -> None:
        self.counts: Counter[str] = Counter()
        self.node = node
        self.send = send
        self._sessions: dict[str, Session] = {}
        self._names = 0
        self._pools: dict[TaskId, Pool] = {}  # by the tasks that are lanes
        self._unlinked: dict[NodeId, asyncio.TimerHandle] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def open(
        self,
        name: str,
        on_news: Callable[[], None],
        submitter: Submitter | None = None,
    ) -> Session:
        """Return a new session; it says by `on_news` that there is something to take.

        The ids of its jobs begin with `name`; the user of the node is the submitter
        unless another is named.
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
        session = Session(
            self, f"{name}-{self._names}", on_news, submitter or Submitter()
        )
        self._sessions[session.name] = session
        return session

    async def clear(self) -> None:
        """End the lanes of an earlier life: clients that come again get new ones."""
        scheduler = self.node.scheduler
        if scheduler is None:
            return
        stale = [
            record.job.id
            for record in scheduler.book.jobs.values()
            if record.state == "active"
            and any(task.work.driver == DRIVER for task in record.job.tasks())
        ]
        for job in stale:
            await self.node.clients.cancel(job, "the node was started again")

    def received(self, peer: NodeId, batch: ResultBatch) -> None:
        """Take in what a lane says, if it is one of ours and runs there."""
        book = self._book
        record = None if book is None else book.tasks.get(batch.task)
        run = None if record is None else record.live.get(batch.attempt)
        if run is None or run.worker != peer:
            self.counts["results of no lane of ours"] += 1
            return
        pool = self._pools.get(batch.task)
        if pool is None or not pool.received(peer, batch):
            self._send_away(peer, batch)

    def linked(self, peer: NodeId) -> None:
        """Say again what may have been lost with the last link."""
        if (timer := self._unlinked.pop(peer, None)) is not None:
            timer.cancel()
        for session in self._sessions.values():
            session.linked(peer)

    def lost(self, peer: NodeId) -> None:
        """Give the lanes there up, unless there is a link again soon."""
        if peer not in self._unlinked and self._sessions:
            loop = asyncio.get_running_loop()
            self._unlinked[peer] = loop.call_later(UNLINKED_S, self._give_up, peer)

    def _give_up(self, peer: NodeId) -> None:
        del self._unlinked[peer]
        for session in self._sessions.values():
            session.give_up(peer)

    def look(self) -> None:
        """See what has become of the tasks that are lanes."""
        if self._book is not None:
            for session in self._sessions.values():
                session.look(self._book)

    def register(self, tasks: Sequence[TaskId], pool: Pool) -> None:
        """Pass on to `pool` what these tasks say."""
        self._pools.update(dict.fromkeys(tasks, pool))

    def unregister(self, task: TaskId) -> None:
        """Pass nothing on of this task any more."""
        self._pools.pop(task, None)

    def end(self, session: Session, jobs: Sequence[JobId]) -> None:
        """Forget a session, and cancel its jobs."""
        self._sessions.pop(session.name, None)
        ending = asyncio.get_running_loop().create_task(self._cancel(jobs))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """End all sessions."""
        for session in list(self._sessions.values()):
            session.close()
        for timer in self._unlinked.values():
            timer.cancel()
        for ending in list(self._ending):
            ending.cancel()
        await asyncio.gather(*self._ending, return_exceptions=True)

    async def _cancel(self, jobs: Sequence[JobId]) -> None:
        for job in jobs:
            await self.node.clients.cancel(job, "its client has gone")

    def _send_away(self, peer: NodeId, batch: ResultBatch) -> None:
        """Tell a lane that nobody wants to leave; it asks again if this is lost."""
        leave = call_items.item(call_items.LEAVE, 0)
        taken = batch.first + len(batch.items)
        first = batch.taken
        answer = CallBatch(
            attempt=batch.attempt, first=first, taken=taken, items=(leave,)
        )
        self.send(peer, answer)

    @property
    def _book(self) -> JobBook | None:
        return None if self.node.scheduler is None else self.node.scheduler.book


@final
class Session:
    """One client. Its results wait in `take` until its stream carries them away."""

    def __init__(
        self,
        calls: Calls,
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
        self._pools: dict[int, Pool] = {}
        self._functions_bytes = 0
        self._results: list[Result] = []
        self._untold_bytes = 0
        self._states: dict[int, None] = {}  # pools whose state is to be told
        self._slow = False
        self._closed = False

    # What the client says.

    def open_pool(self, id_: int, spec: str, lanes_max: int, idle_s: float) -> None:
        """Have interpreters of this kind; a repeat changes nothing."""
        if id_ in self._pools:
            return
        if len(self._pools) >= POOLS_MAX:
            raise UsageError(
                f"more than {POOLS_MAX} kinds of interpreters",
                because="each combination of options is a kind of its own",
                hint="use fewer combinations in one client",
            )
        name = f"{self.name}-{id_}"
        self._pools[id_] = Pool(
            self._calls,
            self,
            id_,
            JobId(name),
            spec,
            lanes_max=lanes_max,
            idle_s=idle_s,
        )

    def define(self, id_: int, code: bytes) -> None:
        """Keep a function for the calls that name it."""
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
        """Run these."""
        unknown = next(
            (c for c in calls if c.function and c.function not in self.functions), None
        )
        if unknown is not None:
            raise UsageError(
                f"call {unknown.id} names function {unknown.function}",
                because="no such function was sent",
                hint="send functions before the calls that name them",
            )
        self._pool(pool).call(calls)

    def stop(self, calls: tuple[int, ...]) -> None:
        """Interrupt these."""
        for pool in self._pools.values():
            pool.stop(calls)

    def backlog(self, pool: int, waiting: int) -> None:
        """Know how many calls the client has not sent."""
        self._pool(pool).backlog(waiting)

    def take(self) -> News | None:
        """Return what the client should be told now, if anything."""
        if not self._results and not self._states:
            return None
        pools = [
            PoolState(id_, pool.credit, pool.lanes, pool.hired)
            for id_ in self._states
            if (pool := self._pools.get(id_)) is not None
        ]
        self._states.clear()
        results = self._cut()
        self._untold_bytes -= sum(len(result.payload) for result in results)
        self._look_at_room()
        return News(results, pools)

    def close(self) -> None:
        """End all lanes of this client."""
        if self._closed:
            return
        self._closed = True
        jobs = [job for pool in self._pools.values() for job in pool.close()]
        self._calls.end(self, jobs)

    # What pools say.

    def answer(self, results: list[Result]) -> None:
        """Pass results on to the client."""
        self._results += results
        self._untold_bytes += sum(len(result.payload) for result in results)
        self._look_at_room()
        self._on_news()

    def changed(self, pool: int) -> None:
        """Tell the client of a pool that has changed."""
        self._states[pool] = None
        self._on_news()

    # What the node says.

    def linked(self, peer: NodeId) -> None:
        """Say again what may have been lost with the last link."""
        for pool in self._pools.values():
            pool.linked(peer)

    def give_up(self, peer: NodeId) -> None:
        """Expect nothing more of the lanes there."""
        for pool in self._pools.values():
            pool.give_up(peer)

    def look(self, book: JobBook) -> None:
        """See what has become of the tasks that are lanes."""
        for pool in self._pools.values():
            pool.look(book)

    def _pool(self, id_: int) -> Pool:
        pool = self._pools.get(id_)
        if pool is None:
            raise UsageError(
                f"a call names pool {id_}",
                because="no such pool was opened",
                hint="open pools before the calls that name them",
            )
        return pool

    def _cut(self) -> list[Result]:
        """Take as many results as fit into one message, one at least."""
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
            for pool in self._pools.values():
                pool.set_open(is_open=not slow)
