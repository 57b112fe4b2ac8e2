"""Hopeless trials are stopped early, and the best is found."""

import math
from random import Random

import pytest

from shoal.train.single.halving import Halving, TrialReport


def report(
    trial: str, rounds: int, figure: float, *, over: bool = False
) -> TrialReport:
    return TrialReport(trial=trial, rounds=rounds, figure=figure, over=over)


def test_trials_report_at_rungs_that_grow() -> None:
    halving = Halving(first=2, eta=3)

    assert [n for n in range(1, 60) if halving.is_rung(n)] == [2, 6, 18, 54]


def test_of_every_three_trials_the_best_goes_on() -> None:
    halving = Halving(first=1, eta=3)

    verdicts = [halving.judge(report(f"t{n}", 1, float(n))) for n in range(6)]

    assert verdicts == ["go-on", "stop", "stop", "stop", "stop", "stop"]
    assert halving.judge(report("t9", 1, 0.5)) == "go-on"


def test_saying_it_again_gets_the_same_answer() -> None:
    halving = Halving(first=1, eta=2)
    first = halving.judge(report("late", 1, 5.0))
    for n in range(4):
        halving.judge(report(f"t{n}", 1, float(n)))

    assert halving.judge(report("late", 1, 5.0)) == first == "go-on"


def test_a_loss_that_is_no_number_is_the_worst() -> None:
    halving = Halving(first=1, eta=2)
    halving.judge(report("a", 1, math.nan))

    assert halving.judge(report("b", 1, 3.0)) == "go-on"
    best = halving.best()
    assert best is not None
    assert best.trial == "b"


def test_a_trial_that_is_over_needs_no_verdict() -> None:
    halving = Halving(first=1, eta=3)

    assert halving.judge(report("a", 9, 1.0, over=True)) == "stop"
    assert halving.over() == ["a"]


@pytest.mark.parametrize("seed", range(20))
def test_the_best_trial_is_found_with_a_fraction_of_the_rounds(seed: int) -> None:
    rng = Random(seed)
    quality = {f"t{n:02}": rng.random() for n in range(27)}
    halving = Halving(first=1, eta=3)
    spent = 0
    for trial in rng.sample(sorted(quality), 27):
        for rounds in range(1, 28):
            spent += 1
            if not halving.is_rung(rounds):
                continue
            figure = quality[trial] + 1 / rounds
            over = rounds == 27
            if halving.judge(report(trial, rounds, figure, over=over)) == "stop":
                halving.judge(report(trial, rounds, figure, over=True))
                break

    best = halving.best()
    assert best is not None
    assert len(halving.over()) == 27
    assert quality[best.trial] <= sorted(quality.values())[3]
    assert spent < 27 * 27 / 2


def test_a_failed_trial_is_over_has_no_result_and_may_come_back() -> None:
    halving = Halving(first=1, eta=3)
    halving.judge(report("t0", 1, 0.1))
    halving.judge(report("t1", 1, 0.5, over=True))

    halving.fail("t0", "it raised")
    halving.fail("t1", "too late")

    assert halving.over() == ["t0", "t1"]
    assert halving.failed == {"t0": "it raised"}
    best = halving.best()
    assert best is not None
    assert best.trial == "t1"

    halving.judge(report("t0", 3, 0.2, over=True))
    best = halving.best()
    assert halving.failed == {}
    assert best is not None
    assert best.trial == "t0"
