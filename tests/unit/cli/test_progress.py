"""Long work tells how far it is; short work says nothing."""

import pytest

from shoal.cli.display.progress import LINE_S, SHOWN_AFTER_S, ProgressDisplay


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
