"""The metrics that tasks have reported, as curves to look at.

They are thinned out: a curve over a day has as many points as one over a minute. Every
point is on disk (`metric_log`), from where curves are made again after a restart.
"""

from __future__ import annotations

import math
from array import array
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple, final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shoal.model.ids import TaskId

POINTS_MAX: Final = 400
CURVES_OF_A_TASK_MAX: Final = 32
CURVES_MAX: Final = 1_000
"""Of all tasks together: 10 MB. Those of the task that was silent longest go first."""

STEP: Final = "step"


class MetricPoint(NamedTuple):
    """One value; `step` is NaN if the task reported none."""

    at_s: float  # since 1970
    step: float
    value: float


@final
class MetricCurve:
    """One metric of one task, with fewer points the older they are."""

    def __init__(self) -> None:
        self._flat = array("d")

    def add(self, point: MetricPoint) -> None:
        """Add a point; of a run of equal values the first and the latest are kept."""
        if len(self._flat) >= 6 and self._flat[-4] == self._flat[-1] == point.value:
            self._flat[-3:] = array("d", point)
            return
        if len(self._flat) == 3 * POINTS_MAX:
            self._thin()
        self._flat.extend(point)

    def since(self, at_s: float) -> list[MetricPoint]:
        """Return the points that are later than this."""
        flat = self._flat
        places = range(0, len(flat), 3)
        return [MetricPoint(*flat[n : n + 3]) for n in places if flat[n] > at_s]

    def _thin(self) -> None:
        """Drop every second point except the first."""
        kept = self.since(-math.inf)[::2]
        self._flat = array("d", [number for point in kept for number in point])


def add_report(
    curves: dict[str, MetricCurve],
    metrics: Mapping[str, float],
    step: float,
    at_s: float,
) -> None:
    """Add what a task reported at one time to its curves, up to a number of them."""
    for name, value in metrics.items():
        if name == STEP:
            continue
        if name not in curves:
            if len(curves) == CURVES_OF_A_TASK_MAX:
                continue
            curves[name] = MetricCurve()
        curves[name].add(MetricPoint(at_s, step, value))


@final
class MetricHistory:
    """The curves of tasks that reported metrics recently."""

    def __init__(self) -> None:
        self._tasks: OrderedDict[TaskId, dict[str, MetricCurve]] = OrderedDict()
        self._count = 0

    def note(self, task: TaskId, metrics: Mapping[str, float], at_s: float) -> None:
        """Record the latest metrics of a task."""
        curves = self._tasks.setdefault(task, {})
        self._tasks.move_to_end(task)
        before = len(curves)
        add_report(curves, metrics, metrics.get(STEP, math.nan), at_s)
        self._count += len(curves) - before
        self._forget()

    def replace(self, task: TaskId, curves: dict[str, MetricCurve]) -> None:
        """Set all curves of a task."""
        self._count -= len(self._tasks.pop(task, {}))
        self._tasks[task] = curves
        self._count += len(curves)
        self._forget()

    def since(self, task: TaskId, at_s: float) -> dict[str, list[MetricPoint]]:
        """Return a task's points later than this, by metric."""
        found = self._tasks.get(task, {})
        later = ((name, curve.since(at_s)) for name, curve in found.items())
        return {name: points for name, points in later if points}

    def _forget(self) -> None:
        while self._count > CURVES_MAX and len(self._tasks) > 1:
            self._count -= len(self._tasks.popitem(last=False)[1])
