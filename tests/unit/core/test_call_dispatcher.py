from shoal.core.calls.call_dispatcher import (
    STALLED_S,
    WINDOW_MAX,
    BacklogTold,
    Call,
    CallAnswer,
    CallDeadline,
    CallDispatcher,
    CallResult,
    CallsCame,
    CreditGranted,
    Effect,
    Hire,
    HireFailed,
    LaneLost,
    LaneOpened,
    LaneSaid,
    StopsAsked,
    TellLane,
)
from shoal.model.ids import Attempt, NodeId
from shoal.protocol import call_items
from shoal.protocol.call_items import item

A = Attempt(NodeId("otter"), 1, 1)
B = Attempt(NodeId("otter"), 1, 2)
CODE = [item(call_items.FUNCTION, 1, b"code")]


def board(*lanes: Attempt, lanes_max: int = 2, idle_s: float = 30.0) -> CallDispatcher:
    made = CallDispatcher({1: CODE}, lanes_max=lanes_max, idle_s=idle_s)
    for lane in lanes:
        made.handle(LaneOpened(lane), 0.0)
    return made


def call(id_: int, *, retries: int = 3, function: int = 0) -> Call:
    return Call(id_, function, (b"args",), retries, size=4)


def calls(*ids: int) -> CallsCame:
    return CallsCame([call(id_) for id_ in ids])


def value(*ids: int, lane: Attempt = A) -> LaneSaid:
    return LaneSaid(lane, [item(call_items.VALUE, id_, b"v") for id_ in ids])


def told(effects: list[Effect]) -> dict[Attempt, list[tuple[int, int]]]:
    """Return kinds and numbers that were said, by lane."""
    found: dict[Attempt, list[tuple[int, int]]] = {}
    for effect in effects:
        if isinstance(effect, TellLane):
            heads = [call_items.head(data) for data in effect.items]
            found.setdefault(effect.lane, []).extend(heads)
    return found


def answers(effects: list[Effect]) -> list[CallResult]:
    return [r for e in effects if isinstance(e, CallAnswer) for r in e.results]


def hires(effects: list[Effect]) -> int:
    return sum(effect.count for effect in effects if isinstance(effect, Hire))


def test_as_many_lanes_are_hired_as_there_are_calls_up_to_the_most() -> None:
    machine = board(lanes_max=3)

    assert hires(machine.handle(calls(1), 0.0)) == 1
    assert hires(machine.handle(BacklogTold(10), 0.0)) == 2
    assert hires(machine.handle(calls(2, 3, 4), 0.0)) == 0


def test_a_function_is_sent_before_the_first_call_that_needs_it() -> None:
    machine = board(A)

    first = machine.handle(CallsCame([call(1, function=1)]), 0.0)
    machine.handle(value(1), 0.1)
    second = machine.handle(CallsCame([call(2, function=1)]), 0.2)

    assert told(first) == {A: [(call_items.FUNCTION, 1), (call_items.CALL, 1)]}
    assert told(second) == {A: [(call_items.CALL, 2)]}


def test_a_lane_gets_more_ahead_the_quicker_it_is() -> None:
    machine = board(A)
    machine.handle(calls(*range(1, 10_000)), 0.0)
    now, next_ = 0.0, 1
    out = 1

    for _ in range(8):
        now += 0.00001 * out
        done = range(next_, next_ + out)
        next_ += out
        effects = machine.handle(value(*done), now)
        out = len(told(effects)[A])

    assert out == WINDOW_MAX


def test_a_slow_lane_gets_one_call_at_a_time() -> None:
    machine = board(A)
    machine.handle(calls(*range(1, 10)), 0.0)

    effects = machine.handle(value(1), 2.0)

    assert told(effects) == {A: [(call_items.CALL, 2)]}


def test_calls_are_shared_evenly_by_lanes() -> None:
    machine = board(A, B)
    machine.handle(calls(1, 2), 0.0)
    machine.handle(value(1, lane=A), 0.0001)
    machine.handle(value(2, lane=B), 0.0001)

    effects = machine.handle(calls(11, 12, 13, 14), 1.0)

    assert {lane: len(said) for lane, said in told(effects).items()} == {A: 2, B: 2}


def test_calls_behind_a_slow_one_are_taken_back_for_an_idle_lane() -> None:
    machine = board(A, lanes_max=2)
    machine.handle(calls(1), 0.0)
    machine.handle(value(1), 0.001)
    machine.handle(calls(2, 3, 4), 0.01)
    machine.handle(LaneOpened(B), 0.02)

    assert machine.next_deadline() == 0.01 + STALLED_S
    recalled = machine.handle(CallDeadline(), 0.01 + STALLED_S)
    back = [item(call_items.BACK, 4), item(call_items.BACK, 3)]
    moved = machine.handle(LaneSaid(A, back), 0.3)

    assert told(recalled) == {A: [(call_items.RECALL, 2)]}
    assert told(moved) == {B: [(call_items.CALL, 3)]}


def test_a_lane_that_goes_gets_nothing_more() -> None:
    machine = board(A)
    machine.handle(calls(1), 0.0)
    going = item(call_items.GOING, call_items.NUMBER_MAX)

    effects = machine.handle(LaneSaid(A, [going]), 0.1)
    effects += machine.handle(calls(2), 0.2)
    effects += machine.handle(LaneSaid(A, [going]), 0.3)

    assert told(effects) == {A: [(call_items.LEAVE, 0)]}  # It may end when it has this.
    assert hires(effects) == 2  # The last lane counts no more.


def test_what_was_on_a_lost_lane_runs_alone_from_then_on() -> None:
    machine = board(A, B)
    machine.handle(calls(1, 2), 0.0)
    machine.handle(value(1, lane=A), 0.001)
    machine.handle(value(2, lane=B), 0.001)  # Both would take several now.
    machine.handle(calls(3), 0.01)
    suspects = machine.handle(LaneLost(A, "killed"), 0.02)

    assert told(suspects) == {B: [(call_items.CALL, 3)]}
    assert told(machine.handle(calls(4, 5), 0.03)) == {}
    both = [(call_items.CALL, 4), (call_items.CALL, 5)]
    assert told(machine.handle(value(3, lane=B), 0.031)) == {B: both}


def test_a_lane_that_opens_is_waited_for_no_more() -> None:
    machine = board()
    machine.handle(calls(1, 2), 0.0)

    machine.handle(LaneOpened(A), 0.1)

    assert (machine.lanes, machine.hired) == (1, 1)


def test_a_call_is_lost_when_it_may_not_run_again() -> None:
    machine = board(A)
    machine.handle(CallsCame([call(1, retries=0)]), 0.0)

    [result] = answers(machine.handle(LaneLost(A, "out of memory"), 0.1))

    assert (result.id, result.kind) == (1, "lost")
    assert b"out of memory" in result.payload


def test_a_result_that_comes_twice_is_told_once() -> None:
    machine = board(A)
    machine.handle(calls(1), 0.0)

    first = machine.handle(value(1), 0.1)
    second = machine.handle(value(1), 0.2)

    assert [result.id for result in answers(first)] == [1]
    assert answers(second) == []


def test_a_result_in_parts_begins_anew_on_another_lane() -> None:
    machine = board(A)
    machine.handle(calls(1), 0.0)
    part = item(call_items.VALUE_PART, 1, b"begin")

    one = answers(machine.handle(LaneSaid(A, [part, part]), 0.1))
    machine.handle(LaneLost(A), 0.2)
    machine.handle(LaneOpened(B), 0.3)
    two = answers(machine.handle(LaneSaid(B, [part]), 0.4))
    end = answers(machine.handle(value(1, lane=B), 0.5))

    assert [(r.part, r.more) for r in one] == [(0, True), (1, True)]
    assert [(r.part, r.more) for r in two] == [(0, True)]
    assert [(r.part, r.more) for r in end] == [(1, False)]


def test_calls_are_refused_when_no_lane_can_ever_come() -> None:
    machine = board()
    machine.handle(calls(1, 2), 0.0)

    effects = machine.handle(HireFailed(2, "no such program", definite=True), 0.1)

    assert [(r.id, r.kind) for r in answers(effects)] == [
        (1, "refused"),
        (2, "refused"),
    ]


def test_after_a_failure_lanes_are_hired_again_but_not_at_once() -> None:
    machine = board()
    machine.handle(calls(1), 0.0)

    effects = machine.handle(HireFailed(1, "it ended"), 1.0)
    due = machine.next_deadline()

    assert effects == []
    assert due == 2.0
    assert hires(machine.handle(CallDeadline(), 2.0)) == 1


def test_a_call_that_waits_is_stopped_here_and_one_that_runs_on_its_lane() -> None:
    machine = board(A)
    machine.handle(calls(1, 2), 0.0)

    effects = machine.handle(StopsAsked((1, 2, 99)), 0.1)

    assert [(r.id, r.kind) for r in answers(effects)] == [(2, "refused")]
    assert told(effects) == {A: [(call_items.STOP, 1)]}


def test_an_idle_lane_is_sent_away_after_a_while() -> None:
    machine = board(A, idle_s=5.0)

    assert machine.next_deadline() == 5.0
    effects = machine.handle(CallDeadline(), 5.0)

    assert told(effects) == {A: [(call_items.LEAVE, 0)]}
    assert machine.lanes == 0


def test_a_lane_that_returns_is_not_hired_again() -> None:
    machine = board(A, lanes_max=1)
    machine.handle(calls(1), 0.0)

    effects = machine.handle(LaneLost(A, "preempted", returns=True), 0.1)

    assert hires(effects) == 0
    assert machine.hired == 1


def test_at_the_end_lanes_stop_what_they_run() -> None:
    machine = board(A)
    machine.handle(calls(1), 0.0)

    assert told(list(machine.farewell())) == {
        A: [(call_items.LEAVE, 0), (call_items.STOP, 1)]
    }


def test_credit_follows_the_windows() -> None:
    machine = board(A)
    machine.handle(calls(1, 2, 3, 4), 0.0)
    grants = [
        e for e in machine.handle(value(1), 0.0001) if isinstance(e, CreditGranted)
    ]

    assert grants == [CreditGranted(4 + 2)]


def test_many_bytes_do_not_go_ahead() -> None:
    machine = board(A)
    machine.handle(calls(1), 0.0)
    machine.handle(value(1), 0.0001)
    big = [Call(n, 0, (b"",), size=3 << 20) for n in (2, 3, 4)]

    effects = machine.handle(CallsCame(big), 0.001)

    assert told(effects) == {A: [(call_items.CALL, 2)]}
