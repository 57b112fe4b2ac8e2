"""Calls of functions on one node: streams of items between clients and interpreters.

Theory of operation. An interpreter that takes calls is a *lane*: an ordinary task, and
so an attempt that some scheduler owns and some worker runs. Each lane has one reliable
stream (`reliable_stream`) between the two. A node plays both parts:

- *Caller.* `PoolOpened` makes a `LanePool` for a client of this node. Its dispatcher
  decides how many lanes to hire and which call goes to which of them. Hired lanes are
  tasks of jobs that the host submits. The first `ResultBatch` of such a task makes the
  lane known; from then on calls go to it in `CallBatch`es. A lane is lost when the job
  book says, on disk, that its attempt is over, or when its worker is out of reach for
  3 s. Its calls then run elsewhere, as often as each of them allows.
- *Worker.* `LaneUp` opens the other end of the stream. Items of the interpreter
  (`LaneWrote`) are kept until the scheduler has taken them; calls that arrive are
  written to it (`WriteLane`). When 16 MiB wait, the interpreter is paused. After its
  end, what it said last is kept and sent again for up to 30 s.

Who is believed. Calls are taken only from the scheduler whose attempt the lane is, and
results only from the worker that runs the attempt, by the job book. A lane that nobody
wants any more is told to leave whenever it says something.

Nothing is durable. A client whose scheduler restarts starts again; the jobs of its old
lanes are cancelled. Streams bound what is on its way, and credit bounds what a client
sends.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, Final, final

import msgspec

from shoal.core.calls.call_dispatcher import CallDeadline
from shoal.core.calls.events import (
    CancelLanes,
    JournalSynced,
    LaneDown,
    LanesAccepted,
    LanesHired,
    LaneSlowed,
    LanesRefused,
    LaneUp,
    LaneWrote,
    PauseLane,
    PoolClosed,
    PoolOpened,
    PoolSlowed,
    PoolTold,
    WriteLane,
)
from shoal.core.calls.lane_pool import LanePool
from shoal.core.calls.reliable_stream import TURN_LAST, ReliableStream
from shoal.core.deadlines import DeadlineHeap, Deadlines
from shoal.core.events import (
    DeadlineReached,
    MessageReceived,
    PeerConnected,
    PeerLost,
    Send,
)
from shoal.core.machine import Mount
from shoal.model.ids import Attempt, JobId, NodeId, TaskId
from shoal.protocol import call_items
from shoal.protocol.call_batches import CallBatch, ResultBatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.core.dispatch.run_states import TaskRun
    from shoal.core.events import Effect, Event
    from shoal.core.membership.roster import Roster
    from shoal.core.scheduling.scheduler import Scheduler

UNTAKEN_BYTES_HIGH: Final = 16 << 20
"""Results of one lane that wait here before the lane itself has to wait."""

LINGER_S: Final = 30.0
"""How long results are kept of a lane that is over."""

UNLINKED_S: Final = 3.0
"""How long a worker may be out of reach before its calls are run elsewhere."""

YIELD_AGAIN_S: Final = 1.0
"""How often it is looked whether lanes should make room for a job that waits."""

ALL: Final = "all"
LEAVE: Final = call_items.item(call_items.LEAVE, 0)


class LocalLane(msgspec.Struct):
    """This node's end of the stream of an interpreter that runs here."""

    stream: ReliableStream[ResultBatch]
    paused: bool = False
    over: bool = False


@final
class CallExchange:
    """Decides where calls and results go; the host writes and reads them."""

    mount = Mount(
        takes={CallBatch: None, ResultBatch: None},
        hears=(
            LaneUp,
            LaneWrote,
            LaneSlowed,
            LaneDown,
            PoolOpened,
            PoolTold,
            PoolSlowed,
            PoolClosed,
            LanesHired,
            LanesAccepted,
            LanesRefused,
            JournalSynced,
        ),
    )

    def __init__(self, roster: Roster, scheduler: Scheduler | None) -> None:
        """Hire lanes by `scheduler`, if this node has one."""
        self.counts: Counter[str] = Counter()
        self._roster = roster
        self._scheduler = scheduler
        self._ends: dict[Attempt, LocalLane] = {}
        self._pools: dict[str, LanePool] = {}
        self._pool_of: dict[TaskId, LanePool] = {}
        heap = DeadlineHeap()
        self._end_streams: Deadlines[Attempt] = Deadlines(heap)
        self._lingering: Deadlines[Attempt] = Deadlines(heap)
        self._pool_streams: Deadlines[Attempt] = Deadlines(heap)
        self._pool_due: Deadlines[str] = Deadlines(heap)
        self._unlinked: Deadlines[NodeId] = Deadlines(heap)
        # Jobs of lanes that have not come, and when to see whether any worker could
        # ever run them.
        self._doubts: Deadlines[JobId] = Deadlines(heap)
        self._doubted: dict[JobId, LanesAccepted] = {}
        self._yields: Deadlines[str] = Deadlines(heap)
        self._takers: dict[type, Callable[[Any, float], list[Effect]]] = {
            LaneUp: self._on_lane_up,
            **dict.fromkeys((LaneWrote, LaneSlowed, LaneDown), self._on_lane),
            PoolTold: self._on_told,
            **dict.fromkeys((PoolOpened, PoolSlowed, PoolClosed), self._on_pool),
            **dict.fromkeys((LanesHired, LanesAccepted, LanesRefused), self._on_hire),
            JournalSynced: self._on_synced,
            PeerConnected: self._on_linked,
            PeerLost: self._on_lost,
            DeadlineReached: self._on_deadline,
        }

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take in one fact; return what to do about it. Raising is a bug."""
        # By type, as calls are many: to find a class in a row of cases costs more.
        kind = type(event)
        if kind is MessageReceived:
            return self._on_message(event, now)  # type: ignore[arg-type]
        take = self._takers.get(kind)
        return [] if take is None else take(event, now)

    def _on_message(self, event: MessageReceived, now: float) -> list[Effect]:
        message = event.message
        if type(message) is ResultBatch:
            return self._on_results(event.peer, message, now)
        if type(message) is CallBatch:
            return self._on_calls(event.peer, message, now)
        return []

    def _on_told(self, event: PoolTold, now: float) -> list[Effect]:
        pool = self._pools.get(event.pool)
        return [] if pool is None else pool.tell(event.told, now)

    def _on_synced(self, _event: JournalSynced, now: float) -> list[Effect]:
        pools = list(self._pools.values())
        return self._look(pools, now) + self._yield_room(pools, now)

    def next_deadline(self) -> float | None:
        """When to deliver `DeadlineReached`, if ever."""
        return self._pool_due.next()

    # Interpreters that run here.

    def _on_lane_up(self, event: LaneUp, _now: float) -> list[Effect]:
        make = partial(ResultBatch, task=event.task, attempt=event.attempt)
        self._ends[event.attempt] = LocalLane(ReliableStream(make))
        return []

    def _on_lane(
        self, event: LaneWrote | LaneSlowed | LaneDown, now: float
    ) -> list[Effect]:
        attempt = event.attempt
        end = self._ends.get(attempt)
        if end is None:
            return []
        match event:
            case LaneWrote():
                end.stream.put(event.items)
            case LaneSlowed():
                end.stream.open = not event.slow
            case LaneDown():
                end.over = True
                self._lingering.set(attempt, now + LINGER_S)
        return self._pump_end(attempt, end, now)

    def _on_calls(self, peer: NodeId, batch: CallBatch, now: float) -> list[Effect]:
        """Pass on what a scheduler says to one of its lanes."""
        end = self._ends.get(batch.attempt)
        if end is None or not _owns(peer, batch.attempt):
            self.counts["calls for no lane of the sender"] += 1
            return []
        effects: list[Effect] = []
        if fresh := end.stream.receive(batch, now):
            effects.append(WriteLane(batch.attempt, fresh))
        return effects + self._pump_end(batch.attempt, end, now)

    def _pump_end(self, attempt: Attempt, end: LocalLane, now: float) -> list[Effect]:
        """Send what is due, and let the interpreter wait while too much is not taken.

        A lane that is over is forgotten when all that it said was taken.
        """
        effects: list[Effect] = [
            Send(attempt.scheduler, batch) for batch in end.stream.due(now)
        ]
        waiting = end.stream.waiting_bytes
        if end.over and not waiting:
            self._forget_end(attempt)
            return effects
        self._end_streams.set(attempt, end.stream.next_deadline())
        paused = waiting > UNTAKEN_BYTES_HIGH
        if paused != end.paused and not end.over:
            end.paused = paused
            effects.append(PauseLane(attempt, paused))
        return effects

    def _forget_end(self, attempt: Attempt) -> None:
        self._lingering.drop(attempt)
        self._end_streams.drop(attempt)
        del self._ends[attempt]

    # Clients of this node.

    def _on_pool(
        self, event: PoolOpened | PoolSlowed | PoolClosed, now: float
    ) -> list[Effect]:
        if isinstance(event, PoolOpened):
            pool = LanePool(event, self._pool_of, self._pool_due, self._pool_streams)
            self._pools[event.pool] = pool
            return pool.begin(now)
        known = self._pools.get(event.pool)
        if known is None:
            return []
        match event:
            case PoolSlowed():
                return known.set_open(is_open=not event.slow, now=now)
            case PoolClosed():
                del self._pools[event.pool]
                return known.close(now)

    def _on_hire(
        self, event: LanesHired | LanesAccepted | LanesRefused, now: float
    ) -> list[Effect]:
        pool = self._pools.get(event.pool)
        if pool is None:
            # Its client has gone meanwhile, and nobody else knows of this job.
            if isinstance(event, LanesAccepted):
                return [CancelLanes((event.job,))]
            return []
        match event:
            case LanesHired():
                pool.hire(event.job, event.tasks)
                return []
            case LanesAccepted():
                pool.accept(event.tasks)
                self._doubted[event.job] = event
                self._doubts.set(event.job, now + pool.never_s)
                return self._look([pool], now)
            case LanesRefused():
                return pool.refuse(event.tasks, event.count, event.reason, now)

    def _on_results(self, peer: NodeId, batch: ResultBatch, now: float) -> list[Effect]:
        """Take in what a lane says, if it is one of ours and runs there."""
        run = self._run_of(batch)
        if run is None or not _runs(peer, run):
            self.counts["results of no lane of ours"] += 1
            return []
        pool = self._pool_of.get(batch.task)
        effects: list[Effect] | None = None
        if pool is not None:
            admission = self._roster.get(peer, now)
            own = admission is not None and admission.owner == pool.owner
            effects = pool.receive(peer, batch, now, own=own)
        return [self._send_away(peer, batch)] if effects is None else effects

    def _send_away(self, peer: NodeId, batch: ResultBatch) -> Send:
        """Tell a lane that nobody wants to leave; it asks again if this is lost."""
        taken = batch.first + len(batch.items)
        answer = CallBatch(
            attempt=batch.attempt,
            first=batch.taken,
            taken=taken,
            items=(LEAVE,),
            turn=TURN_LAST,
        )
        return Send(peer, answer)

    def _run_of(self, batch: ResultBatch) -> TaskRun | None:
        if self._scheduler is None:
            return None
        record = self._scheduler.book.tasks.get(batch.task)
        return None if record is None else record.live.get(batch.attempt)

    def _look(self, pools: list[LanePool], now: float) -> list[Effect]:
        """See what has become of the tasks that are lanes."""
        if self._scheduler is None:
            return []
        book = self._scheduler.book
        return [effect for pool in pools for effect in pool.look(book, now)]

    def _doubt(self, hired: LanesAccepted, now: float) -> list[Effect]:
        """Refuse calls whose lanes no known worker could run, and say why.

        Not at once: other workers may be found. Lanes that merely wait for room are
        looked at again.
        """
        pool = self._pools.get(hired.pool)
        if pool is None or self._scheduler is None:
            return []
        book = self._scheduler.book
        record = book.jobs.get(hired.job)
        waiting = [
            task
            for task in hired.tasks
            if (found := book.tasks.get(task)) is not None and found.state == "waiting"
        ]
        if record is None or not waiting:
            return []
        why = self._scheduler.never(record.job)
        if not why:
            self._doubted[hired.job] = hired
            self._doubts.set(hired.job, now + pool.never_s)
            return []
        reason = f"no node could run its interpreter: {why}"
        refused = pool.refuse(tuple(waiting), len(waiting), reason, now)
        return [CancelLanes((hired.job,)), *refused]

    def _yield_room(self, pools: list[LanePool], now: float) -> list[Effect]:
        """Let lanes know whether jobs wait for their room."""
        if self._scheduler is None:
            return []
        effects: list[Effect] = []
        for pool in pools:
            lanes = pool.tasks
            wanted = self._scheduler.room_wanted(lanes, pool.jobs)
            effects += pool.yield_room(tuple(lanes[task] for task in wanted), now)
        if pools and self._scheduler.has_waiting:
            self._yields.set(ALL, now + YIELD_AGAIN_S)  # Lanes come up, and tasks end.
        return effects

    # Links and time.

    def _on_lost(self, event: PeerLost, now: float) -> list[Effect]:
        if self._pools:
            self._unlinked.set_earlier(event.peer, now + UNLINKED_S)
        return []

    def _on_linked(self, event: PeerConnected, now: float) -> list[Effect]:
        """Send again what may have been lost with the last link."""
        peer = event.peer
        self._unlinked.drop(peer)
        effects: list[Effect] = []
        for attempt, end in list(self._ends.items()):
            if attempt.scheduler == peer:
                end.stream.hasten(now)
                effects += self._pump_end(attempt, end, now)
        for pool in self._pools.values():
            effects += pool.hasten(peer, now)
        return effects

    def _on_deadline(self, _event: DeadlineReached, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for attempt in self._end_streams.pop_due(now):
            effects += self._pump_end(attempt, self._ends[attempt], now)
        for attempt in self._pool_streams.pop_due(now):
            for pool in self._pools.values():
                effects += pool.pump(attempt, now)
        for name in self._pool_due.pop_due(now):
            effects += self._pools[name].tell(CallDeadline(), now)
        if self._yields.pop_due(now):
            effects += self._yield_room(list(self._pools.values()), now)
        for job in self._doubts.pop_due(now):
            effects += self._doubt(self._doubted.pop(job), now)
        for peer in self._unlinked.pop_due(now):
            for pool in self._pools.values():
                effects += pool.give_up(peer, now)
        for attempt in self._lingering.pop_due(now):
            self._forget_end(attempt)
        return effects


def _owns(peer: NodeId, attempt: Attempt) -> bool:
    """Whether a lane is of a scheduler that sends it calls."""
    return attempt.scheduler == peer


def _runs(peer: NodeId, run: TaskRun) -> bool:
    """Whether an attempt runs on the worker that sends results of it."""
    return run.worker == peer
