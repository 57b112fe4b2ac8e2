"""A client, its dispatcher and interpreters that die, over links that lose and repeat.

Time is virtual. The interpreters obey `call_items` as `drivers/lane.py` does.
"""

from collections import Counter, deque
from random import Random

from tests.unit.core.builders import Batch

from shoal.core.calls.call_dispatcher import (
    BacklogTold,
    Call,
    CallAnswer,
    CallDeadline,
    CallDispatcher,
    CallsCame,
    CreditGranted,
    Effect,
    Event,
    Hire,
    HireFailed,
    LaneLost,
    LaneOpened,
    LaneSaid,
    StopsAsked,
    TellLane,
)
from shoal.core.calls.reliable_stream import ReliableStream
from shoal.model.ids import Attempt, NodeId
from shoal.protocol import call_items
from shoal.protocol.call_items import item

STEP_S = 0.01


class Lane:
    """An interpreter, both couriers of its stream, and the link between them."""

    def __init__(self, number: int) -> None:
        self.id = Attempt(NodeId("otter"), 1, number)
        self.here, self.there = ReliableStream(Batch), ReliableStream(Batch)
        self.down: deque[Batch] = deque()
        self.up: deque[Batch] = deque()
        self.waiting: deque[tuple[int, int]] = deque()
        self.functions: set[int] = set()
        self.leaving = False
        self.busy_until = 0.0

    def take(self, data: bytes) -> None:
        kind, number = call_items.head(data)
        if kind == call_items.FUNCTION:
            assert number not in self.functions, "a function is sent once"
            self.functions.add(number)
        elif kind == call_items.CALL:
            function = call_items.CALL_HEAD.unpack_from(data)[2]
            assert not function or function in self.functions
            if self.leaving:
                self.there.put([item(call_items.BACK, number)])
            else:
                self.waiting.append((number, function))
        elif kind == call_items.RECALL:
            for _ in range(min(number, len(self.waiting))):
                self.there.put([item(call_items.BACK, self.waiting.pop()[0])])
        elif kind == call_items.LEAVE:
            self.leaving = True
            while self.waiting:
                self.there.put([item(call_items.BACK, self.waiting.pop()[0])])
            self.there.put([item(call_items.GOING, call_items.NUMBER_MAX)])


class World:
    """Everything around one call_dispatcher."""

    def __init__(
        self, seed: int, *, loss: float, deaths: float, lanes_max: int
    ) -> None:
        self.rng = Random(seed)
        self.loss, self.deaths = loss, deaths
        self.now = 0.0
        self.functions: dict[int, list[bytes]] = {
            1: [item(call_items.FUNCTION, 1, b"code")]
        }
        self.lanes_max = lanes_max
        self.board = CallDispatcher(self.functions, lanes_max=lanes_max, idle_s=1.0)
        self.lanes: dict[Attempt, Lane] = {}
        self.born = 0
        self.coming = 0
        self.sent: dict[int, Call] = {}
        self.answers: Counter[int] = Counter()
        self.kinds: dict[int, str] = {}
        self.runs: Counter[int] = Counter()
        self.begun: Counter[int] = Counter()
        self.poison: set[int] = set()
        self.slow: set[int] = set()
        self.waiting: deque[Call] = deque()
        self.credit = 0
        self.refuse_hires = False
        self.feed(BacklogTold(0))

    # The client.

    def call(self, id_: int, *, retries: int, function: int) -> None:
        self.waiting.append(Call(id_, function, (b"x",), retries, size=1))

    def stop(self, id_: int) -> None:
        self.feed(StopsAsked((id_,)))

    def send(self) -> None:
        calls: list[Call] = []
        while self.waiting and len(self.sent) < self.credit:
            call = self.waiting.popleft()
            self.sent[call.id] = call
            calls.append(call)
        if calls:
            self.feed(CallsCame(calls))
        self.feed(BacklogTold(len(self.waiting)))

    # The host.

    def feed(self, event: Event) -> None:
        for effect in self.board.handle(event, self.now):
            self.perform(effect)

    def perform(self, effect: Effect) -> None:
        match effect:
            case TellLane():
                if effect.lane in self.lanes:
                    self.lanes[effect.lane].here.put(effect.items)
            case CallAnswer():
                for result in effect.results:
                    assert result.id in self.sent, "answers only what was asked"
                    self.answers[result.id] += 1
                    self.kinds[result.id] = result.kind
                    del self.sent[result.id]
            case CreditGranted():
                self.credit = effect.credit
            case Hire():
                self.coming += effect.count
                assert len(self.lanes) + self.coming <= self.lanes_max + len(
                    [lane for lane in self.lanes.values() if lane.leaving]
                )

    # Time.

    def step(self) -> None:
        self.now += STEP_S
        self.send()
        if self.coming and self.rng.random() < 0.2:
            self.coming -= 1
            if self.refuse_hires:
                self.feed(HireFailed(1, "no room", definite=True))
            else:
                self.born += 1
                lane = Lane(self.born)
                self.lanes[lane.id] = lane
                self.feed(LaneOpened(lane.id))
        for lane in list(self.lanes.values()):
            self.carry(lane)
            self.work(lane)
        due = self.board.next_deadline()
        if due is not None and due <= self.now:
            self.feed(CallDeadline())

    def carry(self, lane: Lane) -> None:
        for courier, link in ((lane.here, lane.down), (lane.there, lane.up)):
            for batch in courier.due(self.now):
                if self.rng.random() >= self.loss:
                    link.append(batch)
                if self.rng.random() < self.loss:
                    link.append(batch)
        if self.loss and self.rng.random() < self.loss:
            self.rng.shuffle(lane.down)
            self.rng.shuffle(lane.up)
        while lane.down:
            for data in lane.there.receive(lane.down.popleft(), self.now):
                lane.take(data)
        while lane.up:
            if fresh := lane.here.receive(lane.up.popleft(), self.now):
                self.feed(LaneSaid(lane.id, fresh))

    def work(self, lane: Lane) -> None:
        if self.rng.random() < self.deaths:
            self.kill(lane)
            return
        for _ in range(self.rng.randrange(4)):
            if lane.busy_until > self.now or not lane.waiting:
                break
            number, _ = lane.waiting.popleft()
            self.begun[number] += 1
            if number in self.poison:
                self.kill(lane)
                return
            if number in self.slow:
                lane.busy_until = self.now + 1.0
            self.runs[number] += 1
            lane.there.put([item(call_items.VALUE, number, b"value")])
        drained = not lane.waiting and not lane.there.waiting
        if lane.leaving and drained and lane.busy_until <= self.now:
            self.kill(lane)

    def kill(self, lane: Lane) -> None:
        del self.lanes[lane.id]
        self.feed(LaneLost(lane.id, "killed"))

    def heal(self) -> None:
        self.loss = self.deaths = 0.0

    def run(self, until_s: float) -> None:
        while self.now < until_s and (self.sent or self.waiting):
            self.step()
