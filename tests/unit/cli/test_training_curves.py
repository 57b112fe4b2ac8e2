"""Curves are gathered from what programs print, and drawn in dots."""

import json
import math

from shoal.api import shoal_pb2 as pb
from shoal.cli.display.training_curves import CurveBoard, plot


def piece(*lines: object, task: str = "j.aggregate.0") -> pb.LogPiece:
    text = "".join(
        (line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines
    )
    return pb.LogPiece(task=task, stream=pb.STREAM_STDOUT, data=text.encode())


def round_line(number: float, loss: float, **more: object) -> dict[str, object]:
    return {"event": "round", "round": number, "loss": loss, **more}


def test_a_falling_curve_falls_on_the_screen() -> None:
    lines = plot([[(0, 4.0), (1, 3.0), (2, 2.0), (3, 1.0)]], width=29, height=5)

    assert len(lines) == 6
    assert lines[0].lstrip().startswith("4 ┤")
    assert lines[4].lstrip().startswith("1 ┤")
    first = [line.partition("┤")[2] for line in lines[:5]]
    assert first[0][0] != "\u2800"
    assert first[0][-1] == "\u2800"
    assert first[4][-1] != "\u2800"
    assert lines[5].split() == ["0", "3"]


def test_flat_empty_and_endless_curves_do_no_harm() -> None:
    assert plot([[]]) == []
    assert plot([[(1, math.nan), (2, math.inf)]]) == []
    assert len(plot([[(1, 5.0)], [(1, 5.0), (2, 5.0)]], height=4)) == 5


def test_a_board_gathers_rounds_and_measurements() -> None:
    board = CurveBoard()

    assert board.take(piece(round_line(1.0, 3.0, bytes_sent=58_392.0, workers=3.0)))
    assert board.take(
        piece({"event": "validation", "round": 1.0, "validation_loss": 2.5})
    )

    assert board.loss == {1.0: 3.0}
    assert board.validation == {1.0: 2.5}
    assert board.headline() == (
        "round 1  loss 3  validation 2.5  3 workers  sent 58.4 kB a round"
    )


def test_a_line_that_comes_in_two_pieces_is_one_line() -> None:
    board = CurveBoard()
    data = piece(round_line(2.0, 1.5)).data
    halves = [
        pb.LogPiece(task="j.a.0", stream=pb.STREAM_STDOUT, data=part)
        for part in (data[:20], data[20:])
    ]

    assert [board.take(each) for each in halves] == [False, True]
    assert board.loss == {2.0: 1.5}


def test_what_is_no_figure_is_a_remark_and_nonsense_is_harmless() -> None:
    board = CurveBoard()

    board.take(piece("hello", "[1, 2]", '{"round": "x", "loss": []}', '{"round": 3}'))

    assert board.remarks == ["aggregate.0 | hello", "aggregate.0 | [1, 2]"]
    assert board.loss == {}
    assert board.picture() == []


def test_who_is_missing_in_a_round_is_named() -> None:
    board = CurveBoard()

    board.take(piece(round_line(4.0, 1.0, missing=["train.2"])))

    assert "without train.2" in board.headline()


def test_a_headline_says_tokens_where_samples_are_made_of_them() -> None:
    board = CurveBoard()

    board.take(piece(round_line(1.0, 3.0, samples_per_s=20.0)))
    assert "20 samples/s" in board.headline()
    board.take(piece(round_line(2.0, 3.0, samples_per_s=20.0, tokens_per_s=1280.0)))
    assert "1,280 tokens/s" in board.headline()
