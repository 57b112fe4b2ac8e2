"""Letters are written and read in some worlds, or their promises would be empty."""

from shoal.sim.mail.traffic import MAIL_SHARE
from shoal.sim.seeds import SeedTrial, draw_script


def test_letters_arrive_in_worlds_that_draw_them() -> None:
    trial = SeedTrial(4)

    outcome = trial.run()

    assert outcome.violations == ()
    assert trial.suite.letters is not None
    assert trial.suite.letters.arrived > 50


def test_only_some_worlds_draw_letters() -> None:
    seeds = range(200)
    plans = [draw_script(seed).workload.plans.values() for seed in seeds]

    drawn = sum(any(plan.mail is not None for plan in each) for each in plans)

    assert 0.5 * MAIL_SHARE < drawn / len(seeds) < 1.5 * MAIL_SHARE
