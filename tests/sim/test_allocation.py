"""Workers that an engine lends on demand, in simulated shoals."""

import pytest
from tests.sim.planted_allocation import ALLOCATION_BUGS

from shoal.sim.allocation.promises import AllocationTrial

SEEDS = 25


def test_an_engine_is_asked_for_what_is_wanted_and_for_no_more() -> None:
    placed = submits = 0

    for seed in range(SEEDS):
        trial = AllocationTrial(seed)
        assert trial.run() == (), f"seed {seed}\n{trial.violations.traceback}"
        placed += trial.promises.placed
        submits += trial.cluster.submits

    assert placed > 200
    assert submits > 100


@pytest.mark.parametrize("bug", ALLOCATION_BUGS, ids=lambda bug: bug[0])
def test_a_planted_bug_is_found_by_a_seed_that_is_clean_without_it(
    bug: tuple[str, str, type, str, object, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, promise, where, what, instead, seed = bug
    assert AllocationTrial(seed).run() == ()

    monkeypatch.setattr(where, what, instead)

    [found] = AllocationTrial(seed).run()[:1]
    assert found.id == promise


@pytest.mark.soak
def test_an_engine_is_asked_for_what_is_wanted_for_long() -> None:
    placed = 0
    for seed in range(SEEDS, 2_000):
        trial = AllocationTrial(seed)
        assert trial.run() == (), f"seed {seed}\n{trial.violations.traceback}"
        placed += trial.promises.placed
    assert placed > 10_000
