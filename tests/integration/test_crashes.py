"""Kill -9 at every failpoint: nothing lost, nothing doubled, all devices free."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet
from tests.integration.crash_plans import Arena, Plan, plans

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    made = Arena(Path(tmp_path_factory.mktemp("crashes")))
    yield made
    made.close()


IN_CI = {
    "scheduler-boot.opened-1-kill",
    "scheduler-record.submitted-1-kill",
    "scheduler-kept.assigned-1-kill",
    "scheduler-send.assignment-3-kill",
    "scheduler-journal.commit-2-linger",
    "worker-boot.cleared-1-kill",
    "worker-send.report-1-kill",
    "worker-task.spawned-1-kill",
}
"""One of each kind of seam; `make soak` goes through all of them, and more often."""


def chosen() -> list[ParameterSet]:
    return [
        pytest.param(plan, id=str(plan))
        if str(plan) in IN_CI
        else pytest.param(plan, id=str(plan), marks=pytest.mark.soak)
        for plan in plans()
    ]


def test_what_is_chosen_for_every_run_exists() -> None:
    assert set(map(str, plans())) >= IN_CI


@pytest.mark.parametrize("plan", chosen())
def test_nothing_is_lost_or_doubled_by_a_crash_at(plan: Plan, arena: Arena) -> None:
    arena.run(plan)
