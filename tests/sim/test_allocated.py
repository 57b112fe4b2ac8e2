"""Workers that are allocated for a time, in simulated shoals."""

import pytest
from tests.sim.planted_allocated import ALLOCATED_BUGS

from shoal.sim.lending.allocated import AllocatedTrial

SEEDS = 30


def test_no_task_is_placed_past_the_end_of_its_worker() -> None:
    placed = 0
    reasons: set[str] = set()

    for seed in range(SEEDS):
        trial = AllocatedTrial(seed)
        assert trial.run() == (), f"seed {seed}\n{trial.violations.traceback}"
        placed += trial.promises.started_in_time
        reasons.update(trial.ended.values())

    assert placed > 6 * SEEDS
    assert reasons == {"its allocation ends", "nobody needed it"}


@pytest.mark.parametrize("bug", ALLOCATED_BUGS, ids=lambda bug: bug[0])
def test_a_planted_bug_is_found_by_a_seed_that_is_clean_without_it(
    bug: tuple[str, str, type, str, object, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, promise, where, what, instead, seed = bug
    assert AllocatedTrial(seed).run() == ()

    monkeypatch.setattr(where, what, instead)

    [found] = AllocatedTrial(seed).run()[:1]
    assert found.id == promise


@pytest.mark.soak
def test_allocated_workers_keep_their_promises_for_long() -> None:
    for seed in range(SEEDS, 3_000):
        trial = AllocatedTrial(seed)
        assert trial.run() == (), f"seed {seed}\n{trial.violations.traceback}"
