import functools

import pytest
from tests.sim.planted import BUGS, SEEDS_MAX, Bug, find, known_seeds
from tests.sim.test_world import SEEDS

from shoal.sim.seeds import run_seed


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found_by_a_seed_that_is_clean_without_it(bug: Bug) -> None:
    finding = find(bug, [*known_seeds(bug), *range(SEEDS_MAX)])

    assert finding.seed is not None
    assert finding.promise != "RAISED"
    assert clean(finding.seed)


@functools.cache
def clean(seed: int) -> bool:
    """Whether a seed breaks no promise; several bugs are found by one seed.

    That the first ones break none is what `test_world` asks.
    """
    return seed < SEEDS or run_seed(seed).violations == ()
