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
    keys = minnow.keys(slots, requested_s, idle_s, 1_000.0)
    places: list[int] = np.argsort(keys, kind="stable").tolist()
    return places


def test_without_any_knowledge_it_is_the_simple_rule() -> None:
    slots, requested_s = column(4, 1, 16, 2, 1), column(60, 500, 3, 90, 40)
    simple = Minnow().key(SomeJobs(0.0, slots, requested_s, 0.0, 0.0), 0.0)

    places = np.argsort(simple, kind="stable").tolist()

    assert order(MinnowForesight(SLOTS), slots, requested_s) == places


def test_room_that_lies_idle_counts_as_room_that_a_job_takes() -> None:
    minnow = MinnowForesight(SLOTS)
    slots, requested_s = column(2, 1), column(100, 120)

    assert order(minnow, slots, requested_s) == [1, 0]
    assert order(minnow, slots, requested_s, column(0, 50)) == [0, 1]


def test_the_more_comes_in_the_later_a_large_job_is_served() -> None:
    """The narrow job is longer, the wide one shorter but keeps all slots busy."""
    slots, requested_s = column(16, 1), column(100, 420)
    calm, busy = MinnowForesight(SLOTS), MinnowForesight(SLOTS)
    for minnow, gap_s in ((calm, 4e5), (busy, 0.1)):
        for number in range(3):
            minnow.came(10.0, 1_000.0 - gap_s * (3 - number))

    assert order(calm, slots, requested_s) == [0, 1]
    assert order(busy, slots, requested_s) == [1, 0]


def test_requests_that_were_mostly_far_too_long_are_no_longer_believed() -> None:
    minnow = MinnowForesight(SLOTS)
    slots, requested_s = column(1, 1), column(3_600, 36_000)
    assert order(minnow, slots, requested_s) == [0, 1]

    for _ in range(5):
        minnow.ended(36_000.0, 20.0)

    assert order(minnow, slots, requested_s) == [1, 0]


def test_unknown_and_zero_requests_are_first_and_break_nothing() -> None:
    keys = MinnowForesight(SLOTS).keys(
        column(1, 1, 1), column(-1, 0, 5), np.zeros(3), 0.0
    )

    assert np.isfinite(keys).all()
    assert np.argsort(keys).tolist() == [0, 1, 2]


def test_idle_room_is_what_is_free_until_enough_is() -> None:
    """Two are free now, three more at 110 s, and five more at 130 s; one overran."""
    running = [(130.0, 5), (110.0, 3), (90.0, 1)]

    idle = idle_slot_s(np.array([1, 3, 4, 6, 7, 11, 99]), 2, running, 100.0)

    assert idle.tolist() == pytest.approx([0, 0, 30, 30, 150, 150, 150])
