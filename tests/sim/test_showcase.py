import pytest

from shoal.sim.showcase import competing_gangs, one_announcement


@pytest.mark.parametrize("seed", range(5))
def test_of_gangs_that_compete_each_is_committed_whole(seed: int) -> None:
    figures = competing_gangs(seed)

    assert figures.outcome.violations == ()
    assert figures.committed == figures.gangs == 32


def test_few_of_ten_thousand_workers_answer_an_announcement() -> None:
    figures = one_announcement(workers=10_000, tasks=8)

    assert figures.outcome.violations == ()
    assert figures.placed == 8
    assert figures.answered < 200
