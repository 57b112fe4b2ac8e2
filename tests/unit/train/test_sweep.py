"""The judge of a sweep ends with its trials, however they end."""

import json
from collections import deque
from pathlib import Path

import msgspec
import pytest

from shoal.errors import ShoalError
from shoal.train.exchange import TaskLetter
from shoal.train.single import sweep
from shoal.train.single.halving import Halving, TrialFailed, TrialReport


class Post:
    """An exchange in which what was sent to a task that has ended comes back."""

    name = sweep.JUDGE

    def __init__(self, *said: TrialReport | TrialFailed, dead: tuple[str, ...]) -> None:
        self._said = deque(said)
        self._dead = dead
        self._known: set[str] = set()

    def send(self, to: str, data: bytes) -> None:
        if to in self._dead:
            self._known.add(to)

    def receive(self, timeout_s: float) -> TaskLetter | None:
        if not self._said:
            return None
        report = self._said.popleft()
        return TaskLetter(report.trial, msgspec.msgpack.encode(report))

    def has_ended(self, name: str) -> bool:
        return name in self._known


def over(number: int, figure: float) -> TrialReport:
    return TrialReport(trial=f"trials.{number}", rounds=3, figure=figure, over=True)


pytestmark = pytest.mark.filterwarnings("ignore:shoal.log has no effect")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sweep, "LINGER_S", 0.0)
    monkeypatch.setattr(sweep, "ASK_AFTER_S", 0.0)
    monkeypatch.setattr(sweep, "ASK_AGAIN_S", 0.0)
    monkeypatch.chdir(tmp_path)


def judge(post: Post, trials: int) -> dict[str, object]:
    sweep.run_judge(post, Halving(first=1, eta=3), trials)
    best: dict[str, object] = json.loads(Path("out/best.json").read_text())
    return best


def test_trials_that_raise_or_are_killed_do_not_keep_the_judge_waiting() -> None:
    raised = TrialFailed(trial="trials.1", why="ValueError: bad")
    dead = tuple(f"trials.{number}" for number in range(1, 30))
    post = Post(raised, over(0, 0.5), over(30, 0.25), dead=dead)

    best = judge(post, trials=31)

    assert best["trial"] == "trials.30"
    failed = best["failed"]
    assert isinstance(failed, dict)
    assert set(failed) == set(dead)
    assert failed["trials.1"] == "ValueError: bad"
    assert failed["trials.2"] == "it ended without a result"


def test_a_trial_that_says_it_fails_may_still_be_started_again() -> None:
    raised = TrialFailed(trial="trials.0", why="ValueError: bad")

    best = judge(Post(raised, over(0, 0.5), dead=()), trials=1)

    assert (best["trial"], best["failed"]) == ("trials.0", {})


def test_a_figure_that_is_no_number_is_null_in_json() -> None:
    assert judge(Post(over(0, float("nan")), dead=()), trials=1)["figure"] is None


def test_without_any_result_the_judge_says_why() -> None:
    post = Post(
        TrialFailed(trial="trials.0", why="ValueError: bad"), dead=("trials.0",)
    )

    with pytest.raises(ShoalError, match=r"trials\.0: ValueError: bad"):
        judge(post, trials=1)
