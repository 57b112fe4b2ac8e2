import pytest
from tests.sim.planted import BUGS, Bug, find

from shoal.sim.seeds import run_seed


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found_by_a_seed_that_is_clean_without_it(bug: Bug) -> None:
    finding = find(bug)

    assert finding.seed is not None
    assert finding.promise != "RAISED"
    assert run_seed(finding.seed).violations == ()
