"""Some of the workers lie, each for itself: what is accepted, and at what price."""

from collections.abc import Sequence
from random import Random

import pytest
from tests.sim.planted_lies import LIES, Lie, found_by

from shoal.model.job import Verify
from shoal.sim.faults.cheating import (
    CHEATS,
    FICKLE,
    CheatFound,
    cheating_script,
    run_cheating,
)
from shoal.sim.faults.cheats import Cheat

FIFTH = 4  # of twenty workers
WORK_MAX = 1.3
FOUND_WITHIN = 20
SEEDS = 60
CHUNK = 10


def world(seed: int, cheats: list[Cheat]) -> CheatFound:
    return run_cheating(seed, cheating_script(seed, cheats), strict=False)


@pytest.mark.parametrize(
    "cheats",
    [
        CHEATS,
        *(pytest.param([one] * FIFTH, marks=pytest.mark.soak) for one in CHEATS),
    ],
    ids=["one of each", *(cheat.kind for cheat in CHEATS)],
)
def test_a_fifth_that_cheats_has_nothing_accepted_and_is_found_soon(
    cheats: Sequence[Cheat],
) -> None:
    found = world(1, list(cheats))

    assert found.violations == ()
    assert (found.wrong, found.failed, found.missed) == (0, 0, 0)
    assert len(cheats) == len(found.found_after) == FIFTH
    patience = max(cheat.patience for cheat in cheats)
    assert max(found.found_after) - patience <= FOUND_WITHIN
    assert found.work_later <= WORK_MAX


def test_honest_workers_cost_little_and_none_is_accused() -> None:
    found = world(2, [])

    assert (found.wrong, found.failed, found.found_after) == (0, 0, ())
    assert found.work_later <= WORK_MAX


def test_no_worker_can_make_tasks_fail() -> None:
    found = world(3, [Cheat("failing")] * FIFTH)

    assert (found.wrong, found.failed, found.missed) == (0, 0, 0)


@pytest.mark.parametrize(
    "first",
    [0, *(pytest.param(n, marks=pytest.mark.soak) for n in range(CHUNK, SEEDS, CHUNK))],
)
def test_promises_about_results_are_kept_through_faults(first: int) -> None:
    broken = [
        (seed, found.violations)
        for seed in range(first, first + CHUNK)
        if (found := faulty(seed)).violations
    ]

    assert broken == []


def faulty(seed: int) -> CheatFound:
    rng = Random(seed)
    verify = Verify(
        copies=rng.choice((2, 2, 3)),
        owners=rng.choice(("different", "different", "any")),
        always=rng.random() < 0.2,
    )
    cheats = [rng.choice(FICKLE) for _ in range(2)]
    script = cheating_script(
        seed, cheats, workers=10, tasks=(20, 10, 1), verify=verify, faults=True
    )
    return run_cheating(seed, script)


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.name)
def test_a_planted_bug_of_verification_is_found(lie: Lie) -> None:
    assert found_by(lie, seeds=20) == lie.promise


def test_the_same_seed_gives_the_same_world() -> None:
    script = cheating_script(7, list(CHEATS), workers=8, tasks=(30,))

    assert run_cheating(7, script) == run_cheating(7, script)
