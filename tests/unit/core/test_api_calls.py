"""Calls between nodes: bounded, in order, and deaf to what comes out of turn."""

from shoal.core.api_calls import (
    AHEAD_MAX,
    ANSWER_BYTES_MAX,
    CALLS_MAX,
    CALLS_PER_PEER_MAX,
    RECEIPT_EVERY,
    SILENT_S,
    Answers,
    OpenCalls,
)
from shoal.model.ids import NodeId
from shoal.protocol.api_calls import ApiPiece

ANN, BOB = NodeId("ann"), NodeId("bob")


def message(seq: int, data: bytes = b"x") -> ApiPiece:
    return ApiPiece(number=1, seq=seq, kind="message", data=data)


def part(seq: int, data: bytes = b"x") -> ApiPiece:
    return ApiPiece(number=1, seq=seq, kind="part", data=data)


def end(seq: int) -> ApiPiece:
    return ApiPiece(number=1, seq=seq, kind="end")


# Whoever answers.


def test_a_call_is_opened_once_however_often_it_is_said() -> None:
    book = OpenCalls()

    said = [book.open(ANN, 3, 0.0), book.open(ANN, 3, 0.0), book.open(ANN, 2, 0.0)]
    book.end((ANN, 3))
    said.append(book.open(ANN, 3, 0.0))

    assert said == ["opened", "again", "again", "again"]
    assert book.counts["calls again"] == 3
    assert book.open(BOB, 3, 0.0) == "opened", "everybody counts alone"


def test_one_peer_and_all_together_have_so_many_calls_at_most() -> None:
    book = OpenCalls()

    of_one = [book.open(ANN, n, 0.0) for n in range(CALLS_PER_PEER_MAX + 1)]
    peers = [NodeId(f"n{n}") for n in range(CALLS_MAX)]
    of_all = [book.open(peer, 0, 0.0) for peer in peers]

    assert of_one.count("opened") == CALLS_PER_PEER_MAX
    assert of_one[-1] == "full"
    assert len(book) == CALLS_MAX
    assert of_all[-1] == "full"
    book.end((ANN, 0))
    assert book.open(ANN, 99, 0.0) == "opened", "there is room again"


def test_no_more_is_sent_than_was_taken_and_a_little() -> None:
    book = OpenCalls()
    book.open(ANN, 1, 0.0)
    book[ANN, 1].sent = AHEAD_MAX

    assert not book[ANN, 1].has_room
    assert book.take(ANN, 1, 1, 0.0)
    assert book[ANN, 1].has_room


def test_receipts_for_what_was_never_sent_change_nothing() -> None:
    book = OpenCalls()
    book.open(ANN, 1, 0.0)
    book[ANN, 1].sent = AHEAD_MAX

    assert not book.take(ANN, 1, AHEAD_MAX + 1, 0.0)
    assert not book.take(BOB, 1, 1, 0.0)
    assert not book.take(ANN, 2, 0, 0.0)

    assert not book[ANN, 1].has_room
    assert book.counts["receipts for nothing"] == 3


def test_who_says_nothing_for_long_is_given_up() -> None:
    book = OpenCalls()
    book.open(ANN, 1, 0.0)
    book.open(BOB, 1, 0.0)

    book.take(BOB, 1, 0, SILENT_S)

    assert book.silent(SILENT_S + 1.0) == [(ANN, 1)]


def test_a_peer_that_is_back_counts_anew() -> None:
    book = OpenCalls()
    book.open(ANN, 7, 0.0)

    gone = book.part(ANN)
    for key in gone:
        book.end(key)

    assert gone == [(ANN, 7)]
    assert book.open(ANN, 1, 0.0) == "opened"


# Whoever asks.


def test_pieces_become_answers_and_then_there_is_an_end() -> None:
    answers = Answers()

    for piece in (part(0, b"a"), message(1, b"b"), message(2, b""), end(3)):
        assert answers.put(piece)

    assert [answers.pop() for _ in range(len(answers))] == [b"ab", b""]
    assert answers.end is not None
    assert answers.end.kind == "end"
    assert not answers.put(message(3)), "nothing comes after the end"


def test_an_error_may_have_parts_too() -> None:
    answers = Answers()

    answers.put(part(0, b"no "))
    answers.put(ApiPiece(number=1, seq=1, kind="error", data=b"such job"))

    assert answers.end is not None
    assert (answers.end.kind, answers.end.data) == ("error", b"no such job")


def test_a_piece_that_is_repeated_is_left_out() -> None:
    answers = Answers()

    assert [answers.put(message(0)), answers.put(message(0))] == [True, False]

    assert answers.end is None
    assert len(answers) == 1


def test_a_piece_that_is_missing_ends_it() -> None:
    answers = Answers()
    answers.put(message(0))

    answers.put(ApiPiece(number=1, seq=2, kind="alive"))
    assert answers.end is not None
    assert (answers.end.kind, len(answers)) == ("broken", 1)
    assert "lost" in answers.end.reason


def test_who_sends_more_than_it_may_is_cut_off() -> None:
    answers = Answers()

    took = [answers.put(message(n)) for n in range(AHEAD_MAX + 1)]

    assert took == [True] * AHEAD_MAX + [False]
    assert answers.end is not None
    assert answers.end.kind == "broken"


def test_an_answer_without_end_is_cut_off() -> None:
    answers = Answers()
    big = bytes(1 << 20)

    seq = 0
    while answers.end is None:
        answers.put(part(seq, big))
        answers.receipt()
        seq += 1

    assert seq == ANSWER_BYTES_MAX // len(big) + 1
    assert "64 MiB" in answers.end.reason


def test_receipts_are_due_after_some_pieces_and_not_after_each() -> None:
    answers = Answers()
    due: list[int] = []
    for n in range(4 * AHEAD_MAX):
        answers.put(message(n))
        answers.pop()
        if answers.is_receipt_due():
            due.append(answers.receipt())

    assert due == list(range(RECEIPT_EVERY, 4 * AHEAD_MAX + 1, RECEIPT_EVERY))


def test_what_is_not_read_is_not_told_to_be_taken() -> None:
    answers = Answers()
    for n in range(AHEAD_MAX):
        answers.put(message(n))

    assert not answers.is_receipt_due()
    assert answers.receipt() == 0
