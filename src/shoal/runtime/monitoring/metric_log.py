"""What the tasks of this node's jobs report by `shoal.log`: every point, on disk.

Reports come as output of the stream `metrics` and lie in files like other output, with
their offsets, so a repeat changes nothing. From the files come

- the curves, sampled, and the latest values, in memory, for those who look;
- the export, which has every point.

Memory follows the files: what arrives in order is added at once. After a restart, or
after a gap, a task is *behind* until somebody looks at it; then its files are read
again in a thread.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple, final

from shoal.model import metric_lines
from shoal.runtime.monitoring.metric_history import (
    STEP,
    MetricCurve,
    MetricHistory,
    add_report,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from shoal.model.ids import Attempt, TaskId

STREAM: Final = "metrics"
TASKS_MAX: Final = 20_000
"""Tasks whose latest values are in memory; those of others are read again."""

LATEST_MAX: Final = 256
READ_BYTES: Final = 1 << 20
MICROSECOND_S: Final = 1e-6


class _Known(NamedTuple):
    """What is in memory of a task: up to where, and the latest of each metric."""

    ends: dict[tuple[int, int], int]  # by generation and sequence of the attempt
    latest: dict[str, float]


@final
class MetricLog:
    """The metrics of tasks, read when first asked for."""

    def __init__(
        self,
        files: Callable[[TaskId], list[tuple[int, int, Path]]],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Read the files that `files` names for a task, oldest attempt first."""
        self.curves = MetricHistory()
        self._files = files
        self._clock = clock
        self._known: OrderedDict[TaskId, _Known] = OrderedDict()  # not behind
        self._reading = asyncio.Lock()

    def take(self, task: TaskId, attempt: Attempt, offset: int, data: bytes) -> None:
        """Add a piece that was just written to its file."""
        known = self._known.get(task)
        key = (attempt.generation, attempt.sequence)
        if known is None:
            if offset > 0 or self._files(task)[:-1]:
                return  # The rest is on disk.
            known = self._known[task] = _Known({}, {})
            self._forget()
        end = known.ends.get(key, 0)
        if offset > end:
            del self._known[task]  # A piece is missing, or comes later.
        elif offset == end:
            known.ends[key] = end + len(data)
            self._add(task, known, data)

    def latest(self, task: TaskId) -> dict[str, float]:
        """Return the latest value of each metric of a task that is not behind."""
        known = self._known.get(task)
        return {} if known is None else known.latest

    async def catch_up(self, tasks: Iterable[TaskId]) -> None:
        """Read what is on disk of tasks that are behind."""
        behind = [task for task in tasks if task not in self._known][:TASKS_MAX]
        if not behind:
            return
        async with self._reading:
            for task in behind:
                if task in self._known:
                    continue
                files = self._files(task)
                curves: dict[str, MetricCurve] = {}
                known = _Known({}, {})
                if files:
                    now = self._clock()
                    await asyncio.to_thread(_read, files, curves, known, now)
                    # What came meanwhile is little: read it here, so nothing is missed.
                    _read(self._files(task), curves, known, now)
                    self.curves.replace(task, curves)
                self._known[task] = known
                self._forget()

    def _add(self, task: TaskId, known: _Known, data: bytes) -> None:
        at_s = self._clock()
        for number, report in enumerate(metric_lines.decode(data)):
            metrics = {**report.metrics, STEP: report.step}
            # By the clock of this node: those who look ask for what is later.
            self.curves.note(task, metrics, at_s + number * MICROSECOND_S)
            _keep_latest(known.latest, report)

    def _forget(self) -> None:
        while len(self._known) > TASKS_MAX:
            self._known.popitem(last=False)


def _keep_latest(latest: dict[str, float], report: metric_lines.MetricReport) -> None:
    news = dict(report.metrics)
    if not math.isnan(report.step):
        news[STEP] = report.step
    for name, value in news.items():
        if name in latest or len(latest) < LATEST_MAX:
            latest[name] = value


def _read(
    files: list[tuple[int, int, Path]],
    curves: dict[str, MetricCurve],
    known: _Known,
    now: float,
) -> None:
    """Add what is in the files beyond what is known of them."""
    for generation, sequence, path in files:
        key = (generation, sequence)
        try:
            file = path.open("rb")
        except FileNotFoundError:
            continue  # Its job was forgotten a moment ago.
        with file:
            file.seek(known.ends.get(key, 0))
            while data := file.read(READ_BYTES):
                whole = data[: data.rfind(b"\n") + 1]
                if not whole and len(data) < READ_BYTES:
                    break  # The rest of the line has not come yet.
                whole = whole or data  # No line is so long: it is a hole.
                file.seek(len(whole) - len(data), 1)
                known.ends[key] = known.ends.get(key, 0) + len(whole)
                for report in metric_lines.decode(whole):
                    at_s = min(report.at_s, now)
                    add_report(curves, report.metrics, report.step, at_s)
                    _keep_latest(known.latest, report)
