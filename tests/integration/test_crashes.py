"""Kill -9 at every failpoint: nothing lost, nothing doubled, all devices free."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.crash_plans import Arena, Plan, plans

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    made = Arena(Path(tmp_path_factory.mktemp("crashes")))
    yield made
    made.close()


@pytest.mark.parametrize("plan", plans(), ids=str)
def test_nothing_is_lost_or_doubled_by_a_crash_at(plan: Plan, arena: Arena) -> None:
    arena.run(plan)
