"""Output is held until its scheduler has it, within bounds."""

from tests.unit.core.builders import attempt

from shoal.core.deadlines import DeadlineHeap
from shoal.core.events import Effect, PauseOutput, Send, TaskWrote
from shoal.core.leasing import output_outbox
from shoal.core.leasing.output_outbox import (
    QUEUE_BYTES_MAX,
    WINDOW_BYTES,
    OutputOutbox,
)
from shoal.model.ids import Attempt, LeaseId, NodeId
from shoal.protocol.messages import Outcome, Output, OutputReceipt, Report

S, OTHER = attempt(1).scheduler, NodeId("other")
PIECE = WINDOW_BYTES // 4


def outbox() -> OutputOutbox:
    made = OutputOutbox(NodeId("w"), 1, DeadlineHeap())
    made.begin(attempt(1), receipts=True)
    return made


def wrote(number: int, by: Attempt | None = None) -> TaskWrote:
    return TaskWrote(by or attempt(1), "stdout", number * PIECE, bytes(PIECE))


def numbers(effects: list[Effect]) -> list[int]:
    """Return the numbers of the pieces that are sent."""
    sent = [each.message for each in effects if isinstance(each, Send)]
    places = [each.place for each in sent if isinstance(each, Output)]
    return [place.number for place in places if place is not None]


def pauses(effects: list[Effect]) -> list[bool]:
    return [each.paused for each in effects if isinstance(each, PauseOutput)]


def took(count: int, *, gap: bool = False) -> OutputReceipt:
    return OutputReceipt(epoch=1, taken=count, gap=gap)


def report() -> Report:
    outcome = Outcome("exited", exit_code=0)
    return Report(attempt=attempt(1), lease=LeaseId("w/1/1"), outcome=outcome)


def test_tasks_are_paused_while_a_window_is_held_and_go_on_when_half_is_taken() -> None:
    box = outbox()

    assert [pauses(box.wrote(wrote(n), 0.0)) for n in range(4)] == [[], [], [], [True]]
    assert numbers(box.wrote(wrote(4), 0.0)) == []  # The window is full.

    first = box.on_receipt(S, took(1), 0.0)
    assert (numbers(first), pauses(first)) == ([4], [])
    assert pauses(box.on_receipt(S, took(3), 0.0)) == [False]


def test_what_finds_no_room_is_counted_in_the_report() -> None:
    box = outbox()
    fitting = QUEUE_BYTES_MAX // PIECE

    for number in range(fitting + 2):
        box.wrote(wrote(number), 0.0)

    stamped = box.stamp(report())
    assert stamped.missing == 2 * PIECE
    assert stamped.place is not None
    assert stamped.place.number == fitting


def test_one_who_takes_nothing_takes_no_room_from_others() -> None:
    box = outbox()
    theirs = Attempt(OTHER, 1, 1)
    box.begin(theirs, receipts=True)
    all_bytes = output_outbox.ALL_BYTES_MAX
    many = [Attempt(NodeId(f"s{n}"), 1, 1) for n in range(all_bytes // QUEUE_BYTES_MAX)]
    for each in many:
        box.begin(each, receipts=True)
        for number in range(QUEUE_BYTES_MAX // PIECE):
            box.wrote(wrote(number, each), 0.0)

    effects = box.wrote(wrote(0, theirs), 0.0)

    assert numbers(effects) == [0]
    assert pauses(effects) == [False]  # Of one whose output was given up.


def test_numbers_never_repeat_though_a_queue_ends_between() -> None:
    box = outbox()
    box.wrote(wrote(0), 0.0)
    box.wrote(wrote(1), 0.0)

    box.forget(attempt(1))
    assert box.due(99.0, lambda _: False) == []
    box.begin(attempt(2), receipts=True)

    assert numbers(box.wrote(wrote(0, attempt(2)), 100.0)) == [2]


def test_receipts_of_others_of_another_life_and_of_the_future_change_nothing() -> None:
    box = outbox()
    box.wrote(wrote(0), 0.0)

    box.on_receipt(OTHER, took(1), 0.0)
    box.on_receipt(S, OutputReceipt(epoch=2, taken=1), 0.0)
    box.on_receipt(S, took(2), 0.0)

    assert numbers(box.hasten(S, 1.0)) == [0]


def test_a_scheduler_without_receipts_gets_output_once_and_never_pauses_a_task() -> (
    None
):
    box = OutputOutbox(NodeId("w"), 1, DeadlineHeap())
    box.begin(attempt(1), receipts=False)

    effects = [each for n in range(9) for each in box.wrote(wrote(n), 0.0)]

    assert len(effects) == 9
    assert pauses(effects) == []
    assert box.hasten(S, 1.0) == []
    assert box.stamp(report()) == report()


def test_who_is_out_of_the_shoal_gets_no_output_again() -> None:
    box = outbox()
    box.wrote(wrote(0), 0.0)

    assert box.due(9.0, S.__eq__) == []
    assert box.hasten(S, 10.0) == []
