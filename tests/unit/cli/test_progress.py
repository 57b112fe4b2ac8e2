"""Long work tells how far it is; short work says nothing."""

import functools
from pathlib import Path

import pytest

from shoal.api import node_file
from shoal.api import shoal_pb2 as pb
from shoal.cli.display.progress import (
    LINE_S,
    SHOWN_AFTER_S,
    ProgressDisplay,
)
from shoal.cli.jobs.wait import Watched
from shoal.cli.nodes import down
from shoal.cli.terminal import CLEAR_LINE
from shoal.runtime.home import Home


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_without_a_terminal_there_is_a_line_now_and_then(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = Clock()

    with ProgressDisplay("replaying", clock=clock) as progress:
        for done in range(1, 31):
            clock.now += 1.0
            progress.told(done, 60)

    assert capsys.readouterr().err.splitlines() == [
        "replaying: 10 of 60 · time left 50 s",
        "replaying: 20 of 60 · time left 40 s",
        "replaying: 30 of 60 · time left 30 s",
    ]


def test_work_that_is_short_quiet_or_empty_says_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = Clock()

    with ProgressDisplay("a", clock=clock) as short:
        clock.now += SHOWN_AFTER_S / 2
        short.told(1, 2)
    with (
        ProgressDisplay("b", quiet=True, clock=clock) as quiet,
        ProgressDisplay("c", clock=clock) as no,
    ):
        clock.now += 2 * LINE_S
        quiet.told(1, 2)
        no.told(0, 0)

    assert capsys.readouterr().err == ""


def test_a_terminal_has_a_bar(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    clock = Clock()

    with ProgressDisplay("uploading", clock=clock) as progress:
        clock.now += 2.0
        progress.told(5, 10)
        progress.told(10, 10)

    assert "uploading" in capsys.readouterr().err


def test_a_further_step_counts_and_times_anew(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = Clock()

    with ProgressDisplay("submitting", clock=clock) as progress:
        for step in ("reading", "uploading"):
            for done in range(1, 12):
                clock.now += 1.0
                progress.step(step, done, 20)

    assert capsys.readouterr().err.splitlines() == [
        "reading: 11 of 20 · time left 8 s",
        "uploading: 11 of 20 · time left 8 s",
    ]


def test_a_result_is_told_on_a_line_of_its_own(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    clock = Clock()

    with ProgressDisplay("replaying", clock=clock) as progress:
        clock.now += 2.0
        progress.told(5, 10)
        progress.say("record 5: ok")

    assert f"{CLEAR_LINE}record 5: ok\n" in capsys.readouterr().err


def test_waiting_counts_the_tasks_of_all_jobs_that_were_looked_at(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = Clock()

    with ProgressDisplay("tasks that ended", clock=clock) as progress:
        watched = Watched(progress)
        for done in (0, 3, 9):
            clock.now += 6.0
            watched.see(pb.Job(id="a", counts=pb.Counts(done=done, running=9 - done)))
        clock.now += 6.0
        watched.see(pb.Job(id="b", counts=pb.Counts(failed=1, waiting=8)))

    assert capsys.readouterr().err.splitlines() == [
        "tasks that ended: 3 of 9 · time left 24 s",
        "tasks that ended: 10 of 18 · time left 19 s",
    ]


def test_a_node_that_lets_its_tasks_end_shows_how_long_it_may_take(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    looks = iter([True, True, False])
    display = functools.partial(ProgressDisplay, shown_after_s=0)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr(down, "ProgressDisplay", display)
    monkeypatch.setattr(down, "_ask_to_end", lambda *_: pb.ShutdownReply(tasks=2))
    monkeypatch.setattr(node_file, "is_node", lambda _pid: next(looks))
    found = node_file.NodeFile(1, "n", "heron", "ours", "s.sock", "127.0.0.1:1")

    assert down.stop(Home(tmp_path), found, 60.0).tasks == 2
    assert "stopping, at the latest" in capsys.readouterr().err
