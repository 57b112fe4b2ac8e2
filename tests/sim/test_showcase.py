import pytest

from shoal.sim.showcase import competing_gangs, one_announcement


@pytest.mark.parametrize("seed", range(2))
def test_of_gangs_that_compete_each_is_committed_whole(seed: int) -> None:
    figures = competing_gangs(seed)

    assert figures.outcome.violations == ()
    assert figures.committed == figures.gangs == 32


@pytest.mark.parametrize(
    "workers", [2_000, pytest.param(10_000, marks=pytest.mark.soak)]
)
def test_few_of_thousands_of_workers_answer_an_announcement(workers: int) -> None:
    figures = one_announcement(workers=workers, tasks=8)

    assert figures.outcome.violations == ()
    assert figures.placed == 8
    assert figures.answered < 200
