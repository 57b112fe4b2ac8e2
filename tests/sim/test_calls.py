"""Functions are called in some worlds, or the promises about them would be empty."""

from shoal.sim.calls.traffic import CALLS_SHARE
from shoal.sim.seeds import SeedTrial, draw_script


def test_calls_are_answered_in_worlds_that_draw_them() -> None:
    trial = SeedTrial(13)

    outcome = trial.run()

    assert outcome.violations == ()
    assert trial.calls is not None
    assert trial.calls.promises.answered > 20


def test_only_some_worlds_draw_calls() -> None:
    seeds = range(400)

    drawn = sum(draw_script(seed).calls is not None for seed in seeds)

    assert 0.5 * CALLS_SHARE < drawn / len(seeds) < 1.5 * CALLS_SHARE
