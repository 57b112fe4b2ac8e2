"""One pool of interpreters, as the scheduler of its client sees it.

A pool owns the dispatcher that decides which call goes where, and one reliable stream
for each lane that has said something. It learns from the job book which of the tasks it
hired are over or never came. Everything it asks for is returned as effects.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, assert_never, final

import msgspec

from shoal.core.calls.call_dispatcher import (
    BacklogTold,
    CallAnswer,
    CallDispatcher,
    CreditGranted,
    Hire,
    HireFailed,
    LaneLost,
    LaneOpened,
    LaneSaid,
    RoomWanted,
    TellLane,
)
from shoal.core.calls.events import (
    AnswerCalls,
    CancelLanes,
    HireLanes,
    TellPool,
)
from shoal.core.calls.reliable_stream import ReliableStream
from shoal.core.events import Send
from shoal.model.ids import Attempt, JobId, NodeId, TaskId
from shoal.protocol.call_batches import CallBatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.core.calls import call_dispatcher
    from shoal.core.calls.events import PoolOpened
    from shoal.core.deadlines import Deadlines
    from shoal.core.events import Effect
    from shoal.core.records.records import TaskRecord
    from shoal.core.scheduling.job_book import JobBook
    from shoal.protocol.call_batches import ResultBatch


class PoolLane(msgspec.Struct):
    """A lane that has said something."""

    worker: NodeId
    stream: ReliableStream[CallBatch]
    ready: bool = False


@final
class LanePool:
    """Interpreters of one kind, for one client."""

    def __init__(
        self,
        opened: PoolOpened,
        pool_of: dict[TaskId, LanePool],
        pools: Deadlines[str],
        streams: Deadlines[Attempt],
    ) -> None:
        """Be found in `pool_of` by the tasks that are lanes of this pool.

        It waits in `pools` under its name, and in `streams` by lane.
        """
        self.name = opened.pool
        self.owner = opened.owner
        self.never_s = opened.never_s
        self.lanes: dict[Attempt, PoolLane] = {}
        self._dispatcher = CallDispatcher(
            opened.functions, lanes_max=opened.lanes_max, idle_s=opened.idle_s
        )
        self._pool_of = pool_of
        self._pools = pools
        self._streams = streams
        self._tasks: dict[TaskId, Attempt | None] = {}  # None: not heard of yet
        self._job_of: dict[TaskId, JobId] = {}  # of tasks that have not ended
        self._given_up: dict[Attempt, None] = {}  # as many as lanes were lost so
        self._open = True
        self._yielding: tuple[Attempt, ...] = ()

    def begin(self, now: float) -> list[Effect]:
        """Grant the first credit."""
        return self.tell(BacklogTold(0), now)

    def tell(self, event: call_dispatcher.Event, now: float) -> list[Effect]:
        """Tell the dispatcher something; return what it asks for."""
        effects: list[Effect] = []
        credit: int | None = None
        for effect in self._dispatcher.handle(event, now):
            match effect:
                case TellLane():
                    effects += self.pump(effect.lane, now, effect.items)
                case CallAnswer():
                    effects.append(AnswerCalls(self.name, effect.results))
                case CreditGranted():
                    credit = effect.credit
                case Hire():
                    effects.append(HireLanes(self.name, effect.count))
                case _:
                    assert_never(effect)
        if credit is not None:
            lanes, hired = self._dispatcher.lanes, self._dispatcher.hired
            effects.append(TellPool(self.name, credit, lanes, hired))
        self._pools.set(self.name, self._dispatcher.next_deadline())
        return effects

    def receive(
        self, peer: NodeId, batch: ResultBatch, now: float, *, own: bool
    ) -> list[Effect] | None:
        """Take in what a lane says; the first word makes it known.

        None: it was given up, and its calls run elsewhere.
        """
        attempt = batch.attempt
        lane = self.lanes.get(attempt)
        if lane is None:
            if attempt in self._given_up:
                return None
            stream = ReliableStream(partial(CallBatch, attempt=attempt))
            lane = self.lanes[attempt] = PoolLane(peer, stream)
            lane.stream.open = self._open
            self._tasks[batch.task] = attempt
        effects: list[Effect] = []
        if fresh := lane.stream.receive(batch, now):
            if not lane.ready:
                lane.ready = True
                effects += self.tell(LaneOpened(attempt), now)
            effects += self.tell(LaneSaid(attempt, fresh, own), now)
        return effects + self.pump(attempt, now)

    def pump(
        self, attempt: Attempt, now: float, items: Sequence[bytes] = ()
    ) -> list[Effect]:
        """Send a lane what is due, with more items to say."""
        lane = self.lanes.get(attempt)
        if lane is None:
            return []
        lane.stream.put(items)
        due = lane.stream.due(now)
        self._streams.set(attempt, lane.stream.next_deadline())
        return [Send(lane.worker, batch) for batch in due]

    def hasten(self, peer: NodeId, now: float) -> list[Effect]:
        """Send again what may have been lost with the last link to a worker."""
        effects: list[Effect] = []
        for attempt, lane in self.lanes.items():
            if lane.worker == peer:
                lane.stream.hasten(now)
                effects += self.pump(attempt, now)
        return effects

    def give_up(self, peer: NodeId, now: float) -> list[Effect]:
        """Expect nothing more of the lanes of a worker that is out of reach."""
        effects: list[Effect] = []
        for attempt, lane in list(self.lanes.items()):
            if lane.worker == peer:
                self._given_up[attempt] = None
                effects += self._lose(attempt, "its node is out of reach", now)
        return effects

    @property
    def tasks(self) -> dict[TaskId, Attempt]:
        """The tasks that are lanes now, and their attempts."""
        heard = self._tasks.items()
        return {task: attempt for task, attempt in heard if attempt is not None}

    @property
    def jobs(self) -> frozenset[JobId]:
        """The jobs of its lanes that have not ended."""
        return frozenset(self._job_of.values())

    def yield_room(self, lanes: tuple[Attempt, ...], now: float) -> list[Effect]:
        """Let idle ones of these lanes leave soon, and no others."""
        if lanes == self._yielding:
            return []
        self._yielding = lanes
        return self.tell(RoomWanted(lanes), now)

    def set_open(self, *, is_open: bool, now: float) -> list[Effect]:
        """Take results in, or let lanes wait with them."""
        self._open = is_open
        effects: list[Effect] = []
        for attempt, lane in self.lanes.items():
            lane.stream.open = is_open
            effects += self.pump(attempt, now)
        return effects

    def close(self, now: float) -> list[Effect]:
        """Tell all lanes to leave; return also the jobs that are to be cancelled."""
        effects: list[Effect] = []
        for effect in self._dispatcher.farewell():
            effects += self.pump(effect.lane, now, effect.items)
        for attempt in self.lanes:
            self._streams.drop(attempt)
        self._pools.drop(self.name)
        jobs = tuple(dict.fromkeys(self._job_of.values()))
        for task in list(self._job_of):
            self._forget(task)
        return [*effects, CancelLanes(jobs)] if jobs else effects

    # Hired tasks.

    def hire(self, job: JobId, tasks: tuple[TaskId, ...]) -> None:
        """Expect these tasks to be lanes."""
        self._job_of.update(dict.fromkeys(tasks, job))
        self._pool_of.update(dict.fromkeys(tasks, self))

    def accept(self, tasks: tuple[TaskId, ...]) -> None:
        """Look from now on what becomes of these tasks: the scheduler knows them."""
        for task in tasks:
            self._tasks.setdefault(task, None)

    def refuse(
        self, tasks: tuple[TaskId, ...], count: int, reason: str, now: float
    ) -> list[Effect]:
        """Expect these tasks no more."""
        for task in tasks:
            self._forget(task)
        return self.tell(HireFailed(count, reason, definite=True), now)

    def look(self, book: JobBook, now: float) -> list[Effect]:
        """See which lanes are over, and which never came."""
        effects: list[Effect] = []
        for task, attempt in list(self._tasks.items()):
            record = book.tasks.get(task)
            if record is not None and not record.ended:
                if attempt is not None and attempt not in record.live:
                    self._tasks[task] = None
                    effects += self._lose(attempt, record.reason, now, returns=True)
                continue
            self._forget(task)
            reason = _reason_of(record)
            if attempt is not None:
                effects += self._lose(attempt, reason, now)
                continue
            outcome = None if record is None else record.outcome
            definite = outcome is not None and outcome.kind == "not-started"
            text = f"no interpreter came up: {reason or 'it ended at once'}"
            effects += self.tell(HireFailed(1, text, definite), now)
        return effects

    def _lose(
        self, attempt: Attempt, reason: str, now: float, *, returns: bool = False
    ) -> list[Effect]:
        if self.lanes.pop(attempt, None) is not None:
            self._streams.drop(attempt)
        return self.tell(LaneLost(attempt, reason, returns), now)

    def _forget(self, task: TaskId) -> None:
        self._tasks.pop(task, None)
        self._job_of.pop(task, None)
        self._pool_of.pop(task, None)


def _reason_of(record: TaskRecord | None) -> str:
    """Say why a task that was a lane has ended, if that is known."""
    if record is None:
        return ""
    outcome = record.outcome
    reason = "" if outcome is None else outcome.reason
    if not reason:
        reason = record.reason
    if not reason and outcome is not None and outcome.exit_code:
        reason = f"it ended with exit code {outcome.exit_code}"
    return reason
