"""Calls and results go where they belong, and only those of the right node count."""

from collections import deque

import pytest

from shoal.core.calls.call_dispatcher import BacklogTold, Call, CallsCame
from shoal.core.calls.call_exchange import (
    LINGER_S,
    UNLINKED_S,
    UNTAKEN_BYTES_HIGH,
    CallExchange,
)
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
from shoal.core.durability.journal import AttemptPlace, Submitted
from shoal.core.events import (
    DeadlineReached,
    Effect,
    Event,
    MessageReceived,
    PeerConnected,
    PeerLost,
    Send,
)
from shoal.core.scheduling.job_book import JobBook
from shoal.model.ids import Attempt, GroupId, JobId, LeaseId, NodeId, OwnerId, TaskId
from shoal.model.job import Group, Job, Task
from shoal.protocol import call_items
from shoal.protocol.call_batches import CallBatch, ResultBatch
from shoal.protocol.call_items import item

OTTER, HERON, EVE = NodeId("otter"), NodeId("heron"), NodeId("eve")
JOB, TASK = JobId("p-0"), TaskId("p-0.main.0")
LANE = Attempt(OTTER, 1, 1)
READY = item(call_items.READY, 0)
LEAVE = item(call_items.LEAVE, 0)


class NoRoster:
    """Knows nobody: no node is the client's own."""

    def get(self, _peer: NodeId, _now: float) -> None:
        return None


class Scheduler:
    """As much of a scheduler as the exchange looks at."""

    def __init__(self) -> None:
        self.book = JobBook()
        self.has_waiting = False
        self.wanted: list[TaskId] = []
        self.why = ""

    def never(self, _job: Job) -> str:
        return self.why

    def room_wanted(self, _tasks: object, _besides: object) -> list[TaskId]:
        return self.wanted if self.has_waiting else []


class Shoal:
    """A scheduler with a client, and a worker with an interpreter."""

    def __init__(self) -> None:
        self.scheduler = Scheduler()
        self.now = 0.0
        self.cut = False
        self.sent: list[tuple[NodeId, object]] = []
        self.done: list[Effect] = []
        self._wire: deque[tuple[NodeId, NodeId, CallBatch | ResultBatch]] = deque()
        self.nodes = {
            OTTER: CallExchange(NoRoster(), self.scheduler),  # type: ignore[arg-type]
            HERON: CallExchange(NoRoster(), None),  # type: ignore[arg-type]
        }

    def feed(self, node: NodeId, event: Event) -> list[Effect]:
        effects = self.nodes[node].handle(event, self.now)
        for effect in effects:
            if isinstance(effect, Send):
                assert isinstance(effect.message, CallBatch | ResultBatch)
                self.sent.append((effect.peer, effect.message))
                if not self.cut:
                    self._wire.append((node, effect.peer, effect.message))
            else:
                self.done.append(effect)
        return effects

    def settle(self) -> None:
        while self._wire:
            src, dst, message = self._wire.popleft()
            self.feed(dst, MessageReceived(src, message))

    def wait(self, wait_s: float) -> None:
        self.settle()
        until = self.now + wait_s
        while True:
            due = [
                (at, node)
                for node, machine in self.nodes.items()
                if (at := machine.next_deadline()) is not None and at <= until
            ]
            if not due:
                self.now = until
                return
            at, node = min(due)
            self.now = max(self.now, at)
            self.feed(node, DeadlineReached())
            self.settle()

    def of(self, kind: type[Effect]) -> list[Effect]:
        return [effect for effect in self.done if isinstance(effect, kind)]

    def call(self, *calls: int, retries: int = 0) -> None:
        """Open a pool if need be, and call a function."""
        if not self.of(TellPool):
            self.feed(OTTER, PoolOpened("p", OwnerId("ann"), {}, 2, 60.0))
        made = [Call(call, 0, (b"x",), retries, size=1) for call in calls]
        self.feed(OTTER, PoolTold("p", CallsCame(made)))

    def submit(self) -> None:
        """Submit the lane that the pool wants."""
        self.feed(OTTER, LanesHired("p", JOB, (TASK,)))
        group = GroupId("p-0.main")
        task = Task(id=TASK, job=JOB, group=group)
        job = Job(
            id=JOB, owner=OwnerId("ann"), groups=(Group(id=group, tasks=(task,)),)
        )
        self.scheduler.book.submit(Submitted(job, 0.0), 0.0)
        self.feed(OTTER, LanesAccepted("p", JOB, (TASK,)))

    def start(self) -> None:
        """Submit the lane that the pool wants, and let it come up."""
        self.submit()
        place = AttemptPlace(TASK, LANE, HERON, LeaseId("l"), 0)
        self.scheduler.book.assign((place,), 0.0)
        self.feed(HERON, LaneUp(LANE, TASK))
        self.feed(HERON, LaneWrote(LANE, [READY]))
        self.settle()

    def lose(self) -> None:
        """Let the scheduler find that the lane is over."""
        book = self.scheduler.book
        book.put_back(book.runs[LANE], "its worker was lost")
        self.feed(OTTER, JournalSynced())


@pytest.fixture
def shoal() -> Shoal:
    shoal = Shoal()
    shoal.call(7)
    return shoal


def value(call: int) -> bytes:
    return item(call_items.VALUE, call, b"value")


def answers(shoal: Shoal) -> list[tuple[int, str]]:
    return [
        (result.id, result.kind)
        for effect in shoal.done
        if isinstance(effect, AnswerCalls)
        for result in effect.results
    ]


def test_a_call_hires_a_lane_reaches_it_and_its_result_comes_back(
    shoal: Shoal,
) -> None:
    assert HireLanes("p", 1) in shoal.done

    shoal.start()
    [written] = shoal.of(WriteLane)
    shoal.feed(HERON, LaneWrote(LANE, [value(7)]))
    shoal.settle()

    assert isinstance(written, WriteLane)
    assert [call_items.head(data) for data in written.items] == [(call_items.CALL, 7)]
    assert answers(shoal) == [(7, "value")]


def test_what_a_broken_link_lost_is_sent_again_and_counts_once(shoal: Shoal) -> None:
    shoal.start()
    shoal.cut = True
    shoal.feed(HERON, LaneWrote(LANE, [value(7)]))
    shoal.cut = False

    shoal.feed(HERON, PeerConnected(OTTER, None))
    shoal.wait(5.0)

    assert answers(shoal) == [(7, "value")]


def test_results_of_another_node_are_not_believed(shoal: Shoal) -> None:
    shoal.start()
    forged = ResultBatch(task=TASK, attempt=LANE, first=1, taken=1, items=(value(7),))

    assert shoal.feed(OTTER, MessageReceived(EVE, forged)) == []
    assert answers(shoal) == []


def test_calls_of_another_scheduler_do_not_reach_a_lane(shoal: Shoal) -> None:
    shoal.start()
    forged = CallBatch(attempt=LANE, first=1, taken=1, items=(LEAVE,))

    assert shoal.feed(HERON, MessageReceived(EVE, forged)) == []


def test_a_call_whose_lane_is_lost_runs_again_if_it_allows_that() -> None:
    shoal = Shoal()
    shoal.call(7, retries=1)
    shoal.start()

    shoal.lose()
    again = Attempt(OTTER, 1, 2)
    place = AttemptPlace(TASK, again, HERON, LeaseId("m"), 0)
    shoal.scheduler.book.assign((place,), 0.0)
    shoal.feed(HERON, LaneUp(again, TASK))
    shoal.feed(HERON, LaneWrote(again, [READY]))
    shoal.settle()
    shoal.feed(HERON, LaneWrote(again, [value(7)]))
    shoal.settle()

    assert answers(shoal) == [(7, "value")]


def test_the_loss_of_a_call_that_may_not_run_again_is_reported(shoal: Shoal) -> None:
    shoal.start()

    shoal.lose()

    assert answers(shoal) == [(7, "lost")]


def test_lanes_of_a_node_that_is_out_of_reach_are_given_up(shoal: Shoal) -> None:
    shoal.start()
    shoal.cut = True
    shoal.feed(OTTER, PeerLost(HERON))

    shoal.wait(UNLINKED_S - 0.5)
    before = answers(shoal)
    shoal.wait(1.0)

    assert before == []
    assert answers(shoal) == [(7, "lost")]


def test_a_link_that_is_back_in_time_costs_no_lane(shoal: Shoal) -> None:
    shoal.start()
    shoal.feed(OTTER, PeerLost(HERON))
    shoal.feed(OTTER, PeerConnected(HERON, None))

    shoal.wait(UNLINKED_S + 1.0)

    assert answers(shoal) == []


def test_a_lane_that_was_given_up_is_told_to_leave(shoal: Shoal) -> None:
    shoal.start()
    shoal.feed(OTTER, PeerLost(HERON))
    shoal.wait(UNLINKED_S + 0.1)
    shoal.done.clear()

    shoal.feed(HERON, LaneWrote(LANE, [value(7)]))
    shoal.settle()

    assert shoal.of(WriteLane) == [WriteLane(LANE, [LEAVE])]
    assert answers(shoal) == []


def test_a_lane_that_was_shut_out_before_a_restart_may_say_the_rest(
    shoal: Shoal,
) -> None:
    shoal.start()
    shut = CallBatch(attempt=LANE, first=2, taken=1, open=False, turn=1)
    shoal.feed(HERON, MessageReceived(OTTER, shut))
    restarted = CallExchange(NoRoster(), shoal.scheduler)  # type: ignore[arg-type]
    shoal.nodes[OTTER] = restarted

    shoal.feed(HERON, LaneWrote(LANE, [value(7)]))
    shoal.wait(5.0)

    said = [message for peer, message in shoal.sent if peer == OTTER]
    assert value(7) in [i for m in said if isinstance(m, ResultBatch) for i in m.items]


def test_jobs_of_a_client_that_is_gone_are_cancelled(shoal: Shoal) -> None:
    shoal.start()

    shoal.feed(OTTER, PoolClosed("p"))
    shoal.settle()

    assert shoal.of(CancelLanes) == [CancelLanes((JOB,))]
    stop = item(call_items.STOP, 7)
    assert shoal.of(WriteLane)[-1] == WriteLane(LANE, [LEAVE, stop])


def test_a_job_that_is_accepted_after_its_client_has_gone_is_cancelled() -> None:
    shoal = Shoal()

    shoal.feed(OTTER, LanesAccepted("p", JOB, (TASK,)))

    assert shoal.done == [CancelLanes((JOB,))]


def test_calls_are_refused_if_no_lane_can_be_hired(shoal: Shoal) -> None:
    shoal.feed(OTTER, LanesRefused("p", 1, "too many jobs"))

    assert answers(shoal) == [(7, "refused")]


def test_calls_that_no_worker_could_ever_run_are_refused_with_the_reason() -> None:
    shoal = Shoal()
    shoal.call(7)
    shoal.submit()
    shoal.scheduler.why = "no node has an A100"

    shoal.wait(14.9)
    before = answers(shoal)
    shoal.wait(0.2)

    assert before == []
    [refused] = [e for e in shoal.done if isinstance(e, AnswerCalls)]
    assert refused.results[0].kind == "refused"
    assert b"no node has an A100" in refused.results[0].payload
    assert shoal.of(CancelLanes) == [CancelLanes((JOB,))]


def test_calls_wait_for_room_that_others_hold_and_are_looked_at_again() -> None:
    shoal = Shoal()
    shoal.call(7)
    shoal.submit()

    shoal.wait(40.0)
    before = answers(shoal)
    shoal.scheduler.why = "no node has an A100"
    shoal.wait(15.0)

    assert before == []
    assert answers(shoal) == [(7, "refused")]


def test_an_idle_lane_leaves_soon_if_a_job_waits_for_its_room(shoal: Shoal) -> None:
    shoal.start()
    shoal.feed(HERON, LaneWrote(LANE, [value(7)]))
    shoal.settle()
    shoal.scheduler.has_waiting, shoal.scheduler.wanted = True, [TASK]

    shoal.feed(OTTER, JournalSynced())
    shoal.settle()
    before = [e for e in shoal.of(WriteLane) if e == WriteLane(LANE, [LEAVE])]
    shoal.wait(0.6)

    assert before == []
    assert shoal.of(WriteLane)[-1] == WriteLane(LANE, [LEAVE])


def test_a_lane_that_works_stays_though_a_job_waits(shoal: Shoal) -> None:
    shoal.start()
    shoal.scheduler.has_waiting, shoal.scheduler.wanted = True, [TASK]

    shoal.feed(OTTER, JournalSynced())
    shoal.wait(10.0)

    assert WriteLane(LANE, [LEAVE]) not in shoal.of(WriteLane)


def test_a_lane_whose_results_are_not_taken_is_paused_and_goes_on_later(
    shoal: Shoal,
) -> None:
    shoal.start()
    shoal.cut = True
    part = item(call_items.VALUE_PART, 7, b"x" * 200_000)
    for _ in range(UNTAKEN_BYTES_HIGH // 200_000 + 1):
        shoal.feed(HERON, LaneWrote(LANE, [part]))
    assert shoal.of(PauseLane) == [PauseLane(LANE, paused=True)]

    shoal.cut = False
    shoal.wait(30.0)

    assert shoal.of(PauseLane)[-1] == PauseLane(LANE, paused=False)


def test_the_last_words_of_a_lane_are_sent_again_after_its_end(shoal: Shoal) -> None:
    shoal.start()
    shoal.cut = True
    shoal.feed(HERON, LaneWrote(LANE, [value(7)]))
    shoal.feed(HERON, LaneDown(LANE))
    shoal.cut = False

    shoal.wait(10.0)

    assert answers(shoal) == [(7, "value")]
    assert shoal.nodes[HERON].next_deadline() is None


def test_a_lane_that_is_over_is_forgotten_though_nobody_listens(shoal: Shoal) -> None:
    shoal.start()
    shoal.cut = True
    shoal.feed(HERON, LaneWrote(LANE, [value(7)]))
    shoal.feed(HERON, LaneDown(LANE))

    shoal.wait(LINGER_S + 1.0)

    assert shoal.nodes[HERON].next_deadline() is None


def test_a_pool_of_a_client_that_is_gone_is_told_nothing() -> None:
    shoal = Shoal()

    assert shoal.feed(OTTER, PoolTold("p", BacklogTold(3))) == []
