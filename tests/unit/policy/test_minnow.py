"""Minnow with foresight: idle room, those who come, and what requests are worth."""

import numpy as np
import pytest

from shoal.lab.replay.queues import SomeJobs
from shoal.policy.queueing.easy_backfill import idle_slot_s
from shoal.policy.queueing.minnow import MinnowForesight
from shoal.policy.queueing.queue_orders import Minnow
from shoal.policy.table.rows import Floats

SLOTS = 16


def column(*values: float) -> Floats:
    return np.array(values, float)


def order(
    minnow: MinnowForesight,
    slots: Floats,
    requested_s: Floats,
    idle_s: Floats | None = None,
) -> list[int]:
    idle_s = np.zeros(len(slots)) if idle_s is None else idle_s
    keys = minnow.keys(slots, requested_s, idle_s)
    places: list[int] = np.argsort(keys, kind="stable").tolist()
    return places


def test_without_any_knowledge_large_jobs_are_worse_than_by_the_simple_rule() -> None:
    slots, requested_s = column(4, 1, 16, 2, 1), column(60, 500, 3, 90, 40)
    simple = Minnow().key(SomeJobs(0.0, slots, requested_s, 0.0, 0.0), 0.0)

    places = np.argsort(simple * slots * requested_s, kind="stable").tolist()

    assert order(MinnowForesight(SLOTS), slots, requested_s) == places


def test_room_that_lies_idle_counts_as_room_that_a_job_takes() -> None:
    minnow = MinnowForesight(SLOTS)
    slots, requested_s = column(2, 1), column(100, 120)

    assert order(minnow, slots, requested_s) == [1, 0]
    assert order(minnow, slots, requested_s, column(0, 50)) == [0, 1]


def test_what_a_job_costs_those_who_come_meanwhile_grows_by_the_square() -> None:
    """Both take the same room; the narrow one waits the cheaper for its length."""
    slots, requested_s = column(16, 1), column(100, 1_600)

    assert order(MinnowForesight(SLOTS), slots, requested_s) == [0, 1]
    assert order(MinnowForesight(SLOTS), slots, column(100, 600)) == [1, 0]


def test_of_jobs_with_the_same_mean_the_less_certain_one_is_later() -> None:
    minnow = MinnowForesight(SLOTS)
    slots, requested_s = column(1, 1), column(5_000, 3_000)
    for share in (0.5, 0.5, 0.5, 0.5):
        minnow.ended(3_000.0, 3_000 * share)
    for share in (0.8, 0.2, 0.8, 0.2):
        minnow.ended(5_000.0, 5_000 * share)
    mean_s = (1 + 4 * 0.5) / 5 * 3_000

    surer = minnow.keys(slots, requested_s, np.zeros(2))
    costs = (1 + 4 * 2) / 5 / 3_000, (1 + 2 / 0.8 + 2 / 0.2) / 5 / 5_000
    squares = (1 + 4 * 0.25) / 5 * 3_000**2, (1 + 2 * 0.64 + 2 * 0.04) / 5 * 5_000**2

    assert squares[0] > mean_s**2
    assert surer[1] == pytest.approx(squares[0] / SLOTS**2 / costs[0])
    assert surer[0] == pytest.approx(squares[1] / SLOTS**2 / costs[1])


def test_requests_that_were_mostly_far_too_long_are_no_longer_believed() -> None:
    minnow = MinnowForesight(SLOTS)
    slots, requested_s = column(1, 1), column(3_600, 36_000)
    assert order(minnow, slots, requested_s) == [0, 1]

    for _ in range(5):
        minnow.ended(36_000.0, 20.0)

    assert order(minnow, slots, requested_s) == [1, 0]


def test_unknown_and_zero_requests_are_first_and_break_nothing() -> None:
    keys = MinnowForesight(SLOTS).keys(column(1, 1, 1), column(-1, 0, 5), np.zeros(3))

    assert np.isfinite(keys).all()
    assert np.argsort(keys).tolist() == [0, 1, 2]


def test_idle_room_is_what_is_free_until_enough_is() -> None:
    """Two are free now, three more at 110 s, and five more at 130 s; one overran."""
    running = [(130.0, 5), (110.0, 3), (90.0, 1)]

    idle = idle_slot_s(np.array([1, 3, 4, 6, 7, 11, 99]), 2, running, 100.0)

    assert idle.tolist() == pytest.approx([0, 0, 30, 30, 150, 150, 150])
