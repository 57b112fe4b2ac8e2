"""Training goes on at full speed though machines fail all the time."""

import pytest
from tests.sim.train_failures import FailureModel, goodput, trained

from shoal.train.diloco.rules import RoundRules

CHIPS = 1_200_000
"""Of all workers together: at one failure a chip and year, one every 26 seconds."""


def rules(workers: int, fragments: int = 1) -> RoundRules:
    return RoundRules(
        rounds=100_000,
        inner_steps=50,
        fragments=fragments,
        workers=workers,
        quorum=workers // 4,
        gather_s=5.0,
    )


@pytest.mark.parametrize("fragments", [1, 4])
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.soak) for n in (1, 2))]
)
def test_of_eight_workers_that_fail_every_26_s_88_percent_of_the_work_counts(
    seed: int, fragments: int
) -> None:
    found = goodput(
        seed, rules(8, fragments), FailureModel(chips=CHIPS // 8), span_s=400.0
    )

    assert found >= 0.88


def test_the_more_workers_share_the_failures_the_less_is_lost() -> None:
    found = goodput(1, rules(32), FailureModel(chips=CHIPS // 32), span_s=200.0)

    assert found >= 0.93


def test_workers_that_slow_down_for_a_while_hold_nobody_up_for_long() -> None:
    slow = FailureModel(chips=1, slow_every_s=300.0, slow_for_s=30.0, slow_to=0.2)

    found = goodput(2, rules(8), slow, span_s=600.0)

    # What slow machines can do is 92 %.
    assert found >= 0.75


def test_no_sync_is_skipped_or_closed_below_the_quorum() -> None:
    world = trained(3, rules(8), FailureModel(chips=CHIPS // 8), span_s=400.0)

    syncs = [closing.sync for closing in world.closings]
    assert syncs == list(range(len(syncs)))
    assert all(len(closing.parts) >= 2 for closing in world.closings)
