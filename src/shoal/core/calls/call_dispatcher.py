"""Which call goes to which interpreter: the calls of one client, of one kind.

Theory of operation. An interpreter that takes calls is a *lane*. It runs one call after
another. Calls sent ahead hide the latency of the network, but a call sent too far ahead
waits behind a slow one while other lanes are idle. So every lane has a window: the
calls that it does in `AHEAD_S`, as measured. Calls beyond all windows stay with the
client, which is told its credit. Lanes are hired while more calls wait than lanes take,
and told to leave after `idle_s` without a call; after `YIELD_S` if a job waits for
their room.

A call is answered once, with its first result. It runs again only if its lane was lost
before the result was back, and no more often than it allows. Every call that was on a
lost lane is suspected of having killed it and runs alone on a lane from then on: a call
that kills its interpreter is found out and takes no other call with it.

Nothing is durable. The queue is bounded by the credit that the client was granted.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Literal, assert_never, final

import msgspec

from shoal.model.ids import Attempt
from shoal.protocol import call_items
from shoal.protocol.call_items import HEAD, HEAD_BYTES, PAYLOAD_BYTES_MAX, item

if TYPE_CHECKING:
    from collections.abc import Mapping

AHEAD_S: Final = 0.1
"""How much work is sent ahead to a lane."""

WINDOW_MAX: Final = 1_024
WINDOW_GROWTH: Final = 4
WINDOW_BYTES: Final = 4 << 20
CREDIT_LEAST: Final = 4
STALLED_S: Final = 0.2
"""A lane that has not answered for so long gives back what has not begun."""

YIELD_S: Final = 0.5
"""A lane without a call for so long leaves if somebody waits for its room. Not sooner:
between two calls of a loop every lane is idle."""

HIRE_AGAIN_S: Final = 1.0
HIRES_FAILED_MAX: Final = 3

RESULT_TOO_LARGE: Final = b"its result is more than 1 GiB, or comes mixed with another"

Lane = Attempt
Kind = Literal["value", "raised", "lost", "refused"]


class Call(msgspec.Struct):
    """One call; `parts` together are its payload."""

    id: int
    function: int
    parts: tuple[bytes, ...]
    retries: int = 3
    losses: int = 0  # lanes that were lost with it
    size: int = 0


# Events.


class CallsCame(msgspec.Struct, frozen=True):
    """The client submits calls, within its credit."""

    calls: list[Call]


class BacklogTold(msgspec.Struct, frozen=True):
    """The number of the client's calls that wait for credit has changed."""

    waiting: int


class StopsAsked(msgspec.Struct, frozen=True):
    """The client wants these calls to be interrupted."""

    calls: tuple[int, ...]


class LaneOpened(msgspec.Struct, frozen=True):
    """An interpreter takes calls now."""

    lane: Lane


class LaneSaid(msgspec.Struct, frozen=True):
    """An interpreter answers, in items; `own` if its node has the client's owner."""

    lane: Lane
    items: list[bytes]
    own: bool = False


class LaneLost(msgspec.Struct, frozen=True):
    """An interpreter is over, for a reason, or because it was told to leave.

    If it returns, another one comes in its place without being hired.
    """

    lane: Lane
    reason: str = ""
    returns: bool = False


class HireFailed(msgspec.Struct, frozen=True):
    """Hiring `count` interpreters failed. Definite: it can never succeed."""

    count: int
    reason: str
    definite: bool = False


class RoomWanted(msgspec.Struct, frozen=True):
    """Jobs wait for the room of these lanes, and of no others."""

    lanes: tuple[Lane, ...]


class CallDeadline(msgspec.Struct, frozen=True):
    """The machine's `next_deadline` has come."""


Event = (
    CallsCame
    | BacklogTold
    | StopsAsked
    | LaneOpened
    | LaneSaid
    | LaneLost
    | HireFailed
    | RoomWanted
    | CallDeadline
)

# Effects.


class TellLane(msgspec.Struct, frozen=True):
    """Say this to a lane, in order."""

    lane: Lane
    items: list[bytes]


class CallResult(msgspec.Struct, frozen=True):
    """How a call ended; `more` of it follows. Part 0 voids all earlier parts.

    `own`: it comes from a node of the client's own owner.
    """

    id: int
    kind: Kind
    payload: bytes
    more: bool = False
    part: int = 0
    own: bool = False


class CallAnswer(msgspec.Struct, frozen=True):
    """Tell the client these results."""

    results: list[CallResult]


class CreditGranted(msgspec.Struct, frozen=True):
    """Set how many calls without a result the client may have out."""

    credit: int


class Hire(msgspec.Struct, frozen=True):
    """Hire `count` lanes; each is answered by `LaneOpened` or `HireFailed`."""

    count: int


Effect = TellLane | CallAnswer | CreditGranted | Hire


class _Lane(msgspec.Struct):
    """A lane and what it has not answered, the oldest first."""

    id: Lane
    out: dict[int, Call] = msgspec.field(default_factory=dict[int, Call])
    size: int = 0
    window: int = 1
    mean_s: float | None = None  # of a call
    since: float = 0.0  # when it last answered, got its first call or ran out of them
    functions: dict[int, None] = msgspec.field(default_factory=dict[int, None])
    # By call: how many parts of a result have come, less one, and their bytes.
    parts: dict[int, tuple[int, int]] = msgspec.field(
        default_factory=dict[int, tuple[int, int]]
    )
    recalled: bool = False
    leaving: bool = False
    alone: bool = False  # runs a suspect, and gets nothing else meanwhile

    @property
    def room(self) -> int:
        """How many more calls it may get."""
        if self.leaving or self.alone or self.recalled or self.size >= WINDOW_BYTES:
            return 0
        return max(0, self.window - len(self.out))


@final
class CallDispatcher:
    """Decides; the host says it. `functions` are those of the client, as items."""

    def __init__(
        self,
        functions: Mapping[int, list[bytes]],
        *,
        lanes_max: int,
        idle_s: float,
    ) -> None:
        assert lanes_max > 0
        self._functions = functions
        self._lanes_max = lanes_max
        self._idle_s = idle_s
        self._queue: deque[Call] = deque()
        self._suspects: deque[Call] = deque()
        self._out = 0  # calls that lanes have
        self._lanes: dict[Lane, _Lane] = {}
        self._backlog = 0
        self._hired = 0
        self._hires_failed = 0
        self._hire_at = 0.0
        self._credit = 0
        self._yielding: frozenset[Lane] = frozenset()  # lanes whose room is wanted

    @property
    def lanes(self) -> int:
        """How many lanes take calls."""
        return sum([not lane.leaving for lane in self._lanes.values()])

    @property
    def hired(self) -> int:
        """How many lanes are waited for."""
        return self._hired

    @property
    def unanswered(self) -> int:
        """How many calls have come and have no result."""
        return len(self._queue) + len(self._suspects) + self._out

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take in one fact; return what to do about it. Raising is a bug."""
        effects: list[Effect]
        match event:
            case CallsCame():
                self._queue.extend(event.calls)
                effects = []
            case LaneSaid():
                effects = self._on_lane_said(event, now)
            case BacklogTold():
                self._backlog = event.waiting
                effects = []
            case LaneOpened():
                effects = self._on_lane_opened(event.lane, now)
            case LaneLost():
                effects = self._on_lane_lost(event)
            case StopsAsked():
                effects = self._on_stops_asked(event.calls)
            case HireFailed():
                effects = self._on_hire_failed(event, now)
            case RoomWanted():
                self._yielding = frozenset(event.lanes)
                effects = []
            case CallDeadline():
                effects = []
            case _:
                assert_never(event)
        if self._queue or self._suspects:
            effects += self._fill(now)
        if self._out > 1 and not self._queue:
            effects += self._recall(now)
        effects += self._dismiss(now)
        effects += self._hire(now)
        return effects + self._grant()

    def next_deadline(self) -> float | None:
        """When to deliver `CallDeadline`, if ever."""
        times = [self._hire_at] if self._wanted > 0 else []
        some_idle = self._out > 1 and any(not n.out for n in self._lanes.values())
        for lane in self._lanes.values():
            if lane.leaving:
                continue
            if not lane.out:
                times.append(lane.since + self._kept_s(lane))
            elif some_idle and len(lane.out) > 1 and not lane.recalled:
                times.append(lane.since + STALLED_S)
        return min(times, default=None)

    def farewell(self) -> list[TellLane]:
        """Return the messages that tell lanes to drop an unwanted call."""
        leave = item(call_items.LEAVE, 0)
        return [
            TellLane(
                lane.id, [leave, *(item(call_items.STOP, id_) for id_ in lane.out)]
            )
            for lane in self._lanes.values()
        ]

    # What happens.

    def _on_lane_opened(self, id_: Lane, now: float) -> list[Effect]:
        if id_ not in self._lanes:
            self._lanes[id_] = _Lane(id_, since=now)
            self._hired = max(0, self._hired - 1)
            self._hires_failed = 0
        return []

    def _on_lane_said(self, event: LaneSaid, now: float) -> list[Effect]:
        lane = self._lanes.get(event.lane)
        if lane is None:
            return []  # It was lost, and its calls run elsewhere.
        results: list[CallResult] = []
        effects: list[Effect] = []
        ended = 0
        for data in event.items:
            kind, number = HEAD.unpack_from(data)
            call = lane.out.get(number)
            if call is None:
                if kind == call_items.GOING and not lane.leaving:
                    # By this it knows that what it gets before is all it will get.
                    lane.leaving = True
                    effects.append(TellLane(lane.id, [item(call_items.LEAVE, 0)]))
                continue
            result = self._result(lane, call, kind, data[HEAD_BYTES:], own=event.own)
            if result is not None:
                results.append(result)
                ended += not result.more
        if ended:
            self._measure(lane, ended, now)
        if not lane.out:
            lane.recalled = lane.alone = False
            lane.since = now
        return [*effects, CallAnswer(results)] if results else effects

    def _result(
        self, lane: _Lane, call: Call, kind: int, body: bytes, *, own: bool
    ) -> CallResult | None:
        """Return what an item says of a call; None if the call has not begun."""
        id_ = call.id
        if kind == call_items.VALUE_PART:
            part, before = lane.parts.get(id_, (-1, 0))
            size = before + len(body)
            # A lane runs one call after another: it is never in the midst of two.
            if size <= PAYLOAD_BYTES_MAX and len(lane.parts) <= (part >= 0):
                lane.parts[id_] = (part + 1, size)
                return CallResult(id_, "value", body, more=True, part=part + 1, own=own)
        del lane.out[id_]
        self._out -= 1
        lane.size -= call.size
        part = lane.parts.pop(id_, (-1, 0))[0] + 1 if lane.parts else 0
        if kind == call_items.VALUE:
            return CallResult(id_, "value", body, part=part, own=own)
        if kind == call_items.RAISED:
            return CallResult(id_, "raised", body, own=own)
        if kind == call_items.VALUE_PART:
            return CallResult(id_, "lost", RESULT_TOO_LARGE)
        self._take_back(lane, call)
        return None

    def _take_back(self, lane: _Lane, call: Call) -> None:
        """Queue a call again that has not begun; its lane is slower than it was."""
        self._queue.appendleft(call)
        lane.window = 1
        lane.recalled = False

    def _measure(self, lane: _Lane, ended: int, now: float) -> None:
        per_call_s = max(1e-6, (now - lane.since) / ended)
        before = lane.mean_s
        lane.mean_s = per_call_s if before is None else (before + per_call_s) / 2
        lane.since = now
        fits = int(AHEAD_S / lane.mean_s)
        most = min(WINDOW_MAX, lane.window * WINDOW_GROWTH)
        lane.window = max(1, min(fits, most))

    def _on_lane_lost(self, event: LaneLost) -> list[Effect]:
        lane = self._lanes.pop(event.lane, None)
        if lane is None:
            return []
        self._out -= len(lane.out)
        self._hired += event.returns
        reason = event.reason or "it ended"
        results: list[CallResult] = []
        for call in lane.out.values():
            call.losses += 1
            if call.losses <= call.retries:
                self._suspects.append(call)
                continue
            times = "once" if call.losses == 1 else f"{call.losses} times"
            text = f"its interpreter was lost {times}, at last: {reason}"
            results.append(CallResult(call.id, "lost", text.encode()))
        return [CallAnswer(results)] if results else []

    def _on_stops_asked(self, calls: tuple[int, ...]) -> list[Effect]:
        wanted = dict.fromkeys(calls)
        results = [
            CallResult(call.id, "refused", b"it was stopped before it began")
            for queue in (self._queue, self._suspects)
            for call in queue
            if call.id in wanted
        ]
        gone = {result.id: None for result in results}
        self._queue = deque(call for call in self._queue if call.id not in gone)
        self._suspects = deque(call for call in self._suspects if call.id not in gone)
        effects: list[Effect] = [CallAnswer(results)] if results else []
        for lane in self._lanes.values():
            if there := [number for number in wanted if number in lane.out]:
                items = [item(call_items.STOP, number) for number in there]
                effects.append(TellLane(lane.id, items))
        return effects

    def _on_hire_failed(self, event: HireFailed, now: float) -> list[Effect]:
        self._hired = max(0, self._hired - event.count)
        self._hires_failed += 1
        self._hire_at = now + HIRE_AGAIN_S
        hopeless = event.definite or self._hires_failed >= HIRES_FAILED_MAX
        if not hopeless or self._lanes or self._hired:
            return []
        calls = [*self._suspects, *self._queue]
        self._suspects.clear()
        self._queue.clear()
        self._hires_failed = 0
        reason = event.reason.encode()
        refused = [CallResult(call.id, "refused", reason) for call in calls]
        return [CallAnswer(refused)] if refused else []

    # What to do.

    def _fill(self, now: float) -> list[Effect]:
        """Give lanes what waits: suspects alone, the rest in even shares."""
        open_ = [lane for lane in self._lanes.values() if not lane.leaving]
        effects: list[Effect] = []
        if self._suspects:
            open_.sort(key=lambda lane: len(lane.out))  # Stable: ties stay in order.
            kept = open_[: len(self._suspects)]  # They run dry, one after another.
            open_ = open_[len(self._suspects) :]
            for lane in kept:
                if not lane.out and self._suspects:
                    effects.append(self._send(lane, [self._suspects.popleft()], now))
                    lane.alone = True
        roomy = [lane for lane in open_ if lane.room]
        for place, lane in enumerate(roomy):
            share = -(-len(self._queue) // (len(roomy) - place))
            calls: list[Call] = []
            size = lane.size
            for _ in range(min(share, lane.room)):
                if calls and size + self._queue[0].size > WINDOW_BYTES:
                    break
                calls.append(self._queue.popleft())
                size += calls[-1].size
            if calls:
                effects.append(self._send(lane, calls, now))
        return effects

    def _send(self, lane: _Lane, calls: list[Call], now: float) -> TellLane:
        items: list[bytes] = []
        if not lane.out:
            lane.since = now
        before = len(lane.out)  # A client may give two calls one number.
        for call in calls:
            if call.function and call.function not in lane.functions:
                lane.functions[call.function] = None
                items += self._functions[call.function]
            lane.out[call.id] = call
            lane.size += call.size
            for part in call.parts[:-1]:
                items.append(item(call_items.PART, call.id, part))
            items.append(call_items.call_item(call.id, call.function, call.parts[-1]))
        self._out += len(lane.out) - before
        return TellLane(lane.id, items)

    def _recall(self, now: float) -> list[Effect]:
        """Take calls back from lanes that are stuck, while others are idle."""
        if not any(not lane.out and not lane.leaving for lane in self._lanes.values()):
            return []
        effects: list[Effect] = []
        for lane in self._lanes.values():
            stuck = len(lane.out) > 1 and now >= lane.since + STALLED_S
            if stuck and not lane.recalled:
                lane.recalled = True
                count = len(lane.out) - 1
                effects.append(TellLane(lane.id, [item(call_items.RECALL, count)]))
        return effects

    def _dismiss(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for lane in self._lanes.values():
            if lane.out or lane.leaving or now < lane.since + self._kept_s(lane):
                continue
            lane.leaving = True
            effects.append(TellLane(lane.id, [item(call_items.LEAVE, 0)]))
        return effects

    def _kept_s(self, lane: _Lane) -> float:
        """Return how long a lane is kept without a call."""
        return min(self._idle_s, YIELD_S) if lane.id in self._yielding else self._idle_s

    @property
    def _wanted(self) -> int:
        """How many lanes are missing."""
        load = self.unanswered + self._backlog
        wanted = min(self._lanes_max, load) - self._hired
        return wanted - self.lanes if wanted > 0 else 0

    def _hire(self, now: float) -> list[Effect]:
        count = self._wanted
        if count <= 0 or now < self._hire_at:
            return []
        self._hired += count
        return [Hire(count)]

    def _grant(self) -> list[Effect]:
        """Tell the client when it may send much more, or much less."""
        credit = 0
        for lane in self._lanes.values():
            if not lane.leaving:
                credit += lane.window + max(1, lane.window // 2)
        credit = max(CREDIT_LEAST, credit)
        if self._credit < credit or credit <= self._credit // 2:
            self._credit = credit
            return [CreditGranted(credit)]
        return []
