from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.model.ids import Attempt, BlobId, NodeId
from shoal.net.direct.outbox import Budget, Outbox
from shoal.protocol.blobs import BlobPiece
from shoal.protocol.forwarding import ApiPiece
from shoal.protocol.messages import AnyMessage, Goodbye, Output, Progress

HARD = Goodbye()
ATTEMPT = Attempt(NodeId("a"), 1, 1)
SOFT = Progress(attempt=ATTEMPT, seq=1)
PIECE = BlobPiece(blob=BlobId("b"), level=0, index=0, data=b"")
ANSWER = ApiPiece(number=1, seq=0, kind="message")
TEXT = Output(attempt=ATTEMPT, stream="stdout", offset=0, data=b"")


def box(budget: Budget | None = None, bytes_max: int = 100, count: int = 10) -> Outbox:
    return Outbox(budget or Budget(), bytes_max, count)


def test_messages_leave_in_the_order_in_which_they_came() -> None:
    outbox = box()
    for part in (b"one", b"two", b"three"):
        outbox.put(HARD, part)

    assert outbox.take(6) == [b"one", b"two"]
    assert outbox.take(6) == [b"three"]
    assert outbox.take(6) == []


def test_a_message_larger_than_asked_for_leaves_alone() -> None:
    outbox = box()
    outbox.put(HARD, bytes(50))
    outbox.put(HARD, bytes(5))

    assert [len(part) for part in outbox.take(10)] == [50]


@pytest.mark.parametrize("piece", [PIECE, ANSWER])
def test_pieces_of_blobs_and_of_answers_leave_after_all_else(
    piece: AnyMessage,
) -> None:
    outbox = box()
    for message, part in ((piece, b"p1"), (HARD, b"h1"), (piece, b"p2"), (SOFT, b"s")):
        outbox.put(message, part)

    assert outbox.take(3) == [b"h1", b"s"]
    outbox.put(HARD, b"h2")
    assert outbox.take(3) == [b"h2"]
    assert outbox.take(1) == [b"p1"]
    assert outbox.take(100) == [b"p2"]
    assert (len(outbox), outbox.bytes) == (0, 0)


def test_pieces_of_blobs_get_half_of_the_room_and_are_dropped_first() -> None:
    budget = Budget()
    outbox = box(budget)
    kept = [outbox.put(PIECE, bytes(20)) for _ in range(4)]
    outbox.put(SOFT, bytes(40))

    assert kept == [True, True, False, False]
    assert outbox.put(HARD, bytes(60))
    assert [len(part) for part in outbox.take(1_000)] == [40, 60]
    assert budget.drops == {"dropped soft": 4}
    assert outbox.bytes == budget.bytes == 0


@pytest.mark.parametrize("soft", [SOFT, TEXT])
def test_figures_and_output_get_half_of_the_room(soft: AnyMessage) -> None:
    budget = Budget()
    outbox = box(budget)

    kept = [outbox.put(soft, bytes(20)) for _ in range(4)]

    assert kept == [True, True, False, False]
    assert budget.drops == {"dropped soft": 2}


def test_the_newest_figures_make_room_for_what_matters() -> None:
    budget = Budget()
    outbox = box(budget)
    outbox.put(SOFT, b"1" * 20)
    outbox.put(SOFT, b"2" * 20)
    outbox.put(HARD, b"3" * 40)

    assert outbox.put(HARD, b"4" * 30)

    assert [part[:1] for part in outbox.take(1_000)] == [b"1", b"3", b"4"]
    assert budget.drops == {"dropped soft": 1}


def test_what_matters_is_dropped_when_the_box_is_full_of_its_like() -> None:
    budget = Budget()
    outbox = box(budget)
    outbox.put(HARD, bytes(90))

    assert not outbox.put(HARD, bytes(20))

    assert budget.drops == {"dropped full": 1}
    assert outbox.bytes == budget.bytes == 90


def test_all_boxes_together_have_a_limit() -> None:
    budget = Budget(bytes_max=100)
    one, other = box(budget), box(budget)

    assert one.put(HARD, bytes(60))
    assert not other.put(HARD, bytes(60))

    one.take(100)
    assert other.put(HARD, bytes(60))


def test_what_never_left_is_counted_when_it_is_given_up() -> None:
    budget = Budget()
    outbox = box(budget)
    outbox.put(HARD, b"one")
    outbox.put(SOFT, b"two")

    outbox.clear()

    assert budget.drops == {"dropped undelivered": 2}
    assert (len(outbox), outbox.bytes, budget.bytes) == (0, 0, 0)


@given(
    st.lists(
        st.tuples(st.sampled_from(["hard", "soft", "take"]), st.integers(1, 60)),
        max_size=60,
    )
)
def test_nothing_is_reordered_and_no_limit_is_passed(
    steps: list[tuple[str, int]],
) -> None:
    budget = Budget(bytes_max=150)
    outbox = box(budget, bytes_max=120, count=8)
    hard_kept: deque[bytes] = deque()
    left: list[int] = []

    for number, (step, size) in enumerate(steps):
        if step == "take":
            parts = outbox.take(size)
            left += [int.from_bytes(part[:2], "big") for part in parts]
        else:
            part = number.to_bytes(2, "big") + bytes(size)
            kept = outbox.put(HARD if step == "hard" else SOFT, part)
            if kept and step == "hard":
                hard_kept.append(part)
        assert outbox.bytes == budget.bytes <= 120
        assert len(outbox) <= 8

    parts = outbox.take(10_000)
    left += [int.from_bytes(part[:2], "big") for part in parts]
    assert left == sorted(left)
    assert {int.from_bytes(part[:2], "big") for part in hard_kept} <= {*left}
    assert (len(outbox), outbox.bytes, budget.bytes) == (0, 0, 0)
