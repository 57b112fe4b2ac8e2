"""Stopping the poor tasks of a sweep early: successive halving, as reports come in.

Theory of operation. A group with an objective that has a `first_rung` is watched. Rungs
are that step, and each `eta` times as many later. The first report of a task at or
beyond a rung counts there. Once `eta` tasks have been there, one that is not among the
best of every `eta` so far is stopped. So no task waits for others, whenever they start
(asynchronous successive halving, arXiv 1810.05934).

Reports that carry no step, or not the metric, say nothing. A value that is not a number
is the worst. Nothing is durable: after a restart rungs fill up again, and tasks that
were stopped are done for good. Groups that have ended are forgotten.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from shoal.core.dispatch.run_states import TaskRun
    from shoal.core.scheduling.job_book import JobBook
    from shoal.model.ids import GroupId, TaskId
    from shoal.model.job import Objective
    from shoal.protocol.messages import Progress

STEP: Final = "step"
RUNGS_MAX: Final = 64


@final
class EarlyStopping:
    """The rungs of all groups that are watched."""

    def __init__(self, book: JobBook) -> None:
        self._book = book
        self._rungs: dict[GroupId, dict[int, dict[TaskId, float]]] = {}

    def __len__(self) -> int:
        """Return how many groups have rungs."""
        return len(self._rungs)

    def on_progress(self, run: TaskRun, progress: Progress) -> str:
        """Take in a report; return why its task should stop, or nothing."""
        group = self._book.group_of(run.task)
        objective = group.group.objective
        if objective is None or not objective.first_rung:
            return ""
        value = progress.metrics.get(objective.metric)
        step = progress.metrics.get(STEP)
        if value is None or step is None or math.isnan(step):
            return ""
        if group.id not in self._rungs:
            self._forget_ended()
        rungs = self._rungs.setdefault(group.id, {})
        for rung in _rungs_until(step, objective):
            there = rungs.setdefault(rung, {})
            if run.task not in there:
                there[run.task] = _badness(value, objective)
                if not _goes_on(there, run.task, objective.eta):
                    what = f"{objective.metric} {value:.4g}"
                    best = f"the best 1 of {objective.eta}"
                    return f"stopped early at step {step:.0f}: {what} is not in {best}"
        return ""

    def _forget_ended(self) -> None:
        groups = self._book.groups
        self._rungs = {
            id_: rungs
            for id_, rungs in self._rungs.items()
            if id_ in groups and groups[id_].open
        }


def _rungs_until(step: float, objective: Objective) -> list[int]:
    rungs: list[int] = []
    rung = objective.first_rung
    while rung <= step and len(rungs) < RUNGS_MAX:
        rungs.append(rung)
        rung *= objective.eta
    return rungs


def _badness(value: float, objective: Objective) -> float:
    if math.isnan(value):
        return math.inf
    return value if objective.goal == "min" else -value


def _goes_on(there: dict[TaskId, float], task: TaskId, eta: int) -> bool:
    """Whether a task is among the best of every `eta` that were at a rung so far."""
    if len(there) < eta:
        return True
    better = sum(badness < there[task] for badness in there.values())
    return better < math.ceil(len(there) / eta)
