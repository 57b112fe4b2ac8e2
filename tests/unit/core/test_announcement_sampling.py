"""How many workers answer an announcement."""

from math import sqrt
from random import Random

import pytest

from shoal.core.discovery.announcement_sampling import (
    SPARE,
    answer_probability,
    answers,
)


def test_about_four_workers_answer_for_each_task_wanted() -> None:
    expected = 10_000 * answer_probability(8, 10_000, 0)

    assert expected == pytest.approx(SPARE * 8)


def test_the_number_of_answers_is_as_expected_by_chance() -> None:
    rng = Random(3)
    count = sum(answers(8, 10_000, 0, rng) for _ in range(10_000))

    assert abs(count - 32) < 4 * sqrt(32)


def test_in_a_small_shoal_everybody_answers() -> None:
    assert answer_probability(1, 4, 0) == 1.0
    assert answer_probability(1, 0, 0) == 1.0


def test_nobody_answers_when_nothing_is_wanted() -> None:
    assert answer_probability(0, 10, 5) == 0.0


@pytest.mark.parametrize(("nodes", "repeats"), [(1_000, 4), (100_000, 8)])
def test_repeats_reach_certainty_soon(nodes: int, repeats: int) -> None:
    assert answer_probability(1, nodes, repeats) == 1.0


def test_a_repeat_number_beyond_all_bounds_is_certain_and_harmless() -> None:
    assert answer_probability(1, 10**9, 10**12) == 1.0
