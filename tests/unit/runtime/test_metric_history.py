"""Curves are bounded, whatever tasks tell."""

import math

from shoal.model.ids import TaskId
from shoal.runtime.monitoring.metric_history import (
    CURVES_MAX,
    CURVES_OF_A_TASK_MAX,
    POINTS_MAX,
    MetricCurve,
    MetricHistory,
    MetricPoint,
)

TASK = TaskId("j.main.0")


def test_a_curve_has_the_points_in_order_with_their_steps() -> None:
    curves = MetricHistory()
    curves.note(TASK, {"loss": 3.0, "step": 1.0}, at_s=10.0)
    curves.note(TASK, {"loss": 2.0, "step": 2.0}, at_s=11.0)

    found = curves.since(TASK, 0.0)

    assert found == {"loss": [MetricPoint(10.0, 1.0, 3.0), MetricPoint(11.0, 2.0, 2.0)]}


def test_only_what_is_later_is_told_again() -> None:
    curves = MetricHistory()
    curves.note(TASK, {"loss": 3.0}, at_s=10.0)
    curves.note(TASK, {"loss": 2.0}, at_s=11.0)

    [point] = curves.since(TASK, 10.0)["loss"]

    assert point.value == 2.0
    assert math.isnan(point.step)
    assert curves.since(TASK, 11.0) == {}


def test_a_figure_that_does_not_change_has_its_first_and_its_latest_point() -> None:
    curve = MetricCurve()
    for step in range(2_000):
        curve.add(MetricPoint(step, step, 7.0))
    flat = [point.step for point in curve.since(-1.0)]
    curve.add(MetricPoint(2_000, 2_000, 6.0))

    assert flat == [0, 1_999]
    assert [point.step for point in curve.since(-1.0)] == [0, 1_999, 2_000]


def test_a_long_curve_is_thinned_and_keeps_its_ends() -> None:
    curve = MetricCurve()
    for n in range(10 * POINTS_MAX):
        curve.add(MetricPoint(n, n, n))

    points = curve.since(-1.0)

    assert POINTS_MAX / 2 <= len(points) <= POINTS_MAX
    assert points[0].value == 0
    assert points[-1].value == 10 * POINTS_MAX - 1
    assert points == sorted(points)


def test_tasks_that_were_silent_longest_are_forgotten_first() -> None:
    curves = MetricHistory()
    figures = {f"m{n}": float(n) for n in range(2 * CURVES_OF_A_TASK_MAX)}
    many = CURVES_MAX // CURVES_OF_A_TASK_MAX + 2
    for n in range(many):
        curves.note(TaskId(f"t{n}"), figures, at_s=1.0)

    assert curves.since(TaskId("t0"), 0.0) == {}
    last = curves.since(TaskId(f"t{many - 1}"), 0.0)
    assert len(last) == CURVES_OF_A_TASK_MAX
