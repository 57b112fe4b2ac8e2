"""`--watch` draws what any program reports by `shoal.log`."""

from collections.abc import Iterator

import pytest

from shoal.api import shoal_pb2 as pb
from shoal.cli.display.training_curves import MetricBoard, watch
from shoal.model.metric_lines import encode


def piece(task: str, *reports: dict[str, float]) -> pb.LogPiece:
    data = b"".join(line for each in reports for line in encode(1.0, each))
    return pb.LogPiece(task=task, attempt=1, stream=pb.STREAM_METRICS, data=data)


def test_one_task_is_told_with_all_its_metrics() -> None:
    board = MetricBoard({})

    board.take(piece("j.main.0", {"lr": 0.5, "loss": 3.0, "step": 1.0}))
    board.take(piece("j.main.0", {"lr": 0.25, "loss": 2.0, "step": 2.0}))

    assert board.shown == "loss"
    assert board.headline() == "step 2  loss 2  lr 0.25"
    assert len(board.picture()) > 5


def test_several_tasks_are_told_by_name_and_one_metric() -> None:
    board = MetricBoard({"j.main.0": "lr=0.1", "j.main.1": "lr=0.2"}, "score")
    board.take(piece("j.main.0", {"score": 3.0, "loss": 1.0}))
    board.take(piece("j.main.1", {"score": 4.0, "loss": 2.0}))

    assert board.headline() == "score  lr=0.1 3  lr=0.2 4"


def test_a_report_in_two_pieces_is_one() -> None:
    whole = piece("j.main.0", {"loss": 3.0, "step": 1.0})
    first = pb.LogPiece(task="j.main.0", attempt=1, data=whole.data[:9])
    second = pb.LogPiece(task="j.main.0", attempt=1, data=whole.data[9:])
    board = MetricBoard({})

    assert [board.take(first), board.take(second)] == [False, True]
    assert board.headline() == "step 1  loss 3"


def test_both_streams_are_watched_to_their_ends(
    capsys: pytest.CaptureFixture[str],
) -> None:
    printed = pb.LogPiece(task="j.main.0", stream=pb.STREAM_STDOUT, data=b"hello\n")
    reports = [{"loss": 1 / n, "step": float(n)} for n in range(1, 9)]

    watch([printed], [piece("j.main.0", *reports)])

    out, err = capsys.readouterr()
    assert err == "main.0 | hello\n"
    assert out.splitlines()[-1].split() == ["1", "8"]


@pytest.mark.parametrize("columns", [20, 40, 60, 200])
def test_no_line_wraps_in_a_narrow_terminal(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    names = {f"j.main.{n}": f"learning_rate=0.{n}" for n in range(5)}

    watch([], [piece(task, {"loss": 1.0}, {"loss": 0.5}) for task in names], names)

    lines = capsys.readouterr().out.split("\x1b[2K")[1:]
    assert len(lines) >= 5 * 11
    assert max(len(line.partition("\n")[0]) for line in lines) <= max(25, columns - 1)
    if columns == 200:
        assert "learning_rate=0.2" in lines[-12]


def test_what_fails_in_one_stream_is_raised() -> None:
    def broken() -> Iterator[pb.LogPiece]:
        yield piece("j.main.0", {"loss": 1.0})
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError, match="gone"):
        watch([], broken())
