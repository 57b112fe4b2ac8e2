"""What a scheduler does besides running jobs, in one place: see each part."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from shoal.core.housekeeping.end_calls import EndCalls
from shoal.core.housekeeping.events import (
    EndCallEnded,
    JobMeasured,
    RemovalRequested,
)
from shoal.core.housekeeping.retention import KeepRule, Retention
from shoal.core.housekeeping.run_meter import RunMeter

if TYPE_CHECKING:
    from shoal.core.deadlines import DeadlineHeap
    from shoal.core.dispatch.run_states import EndedRun
    from shoal.core.events import Effect
    from shoal.core.scheduling.job_book import JobBook

UpkeepEvent = RemovalRequested | JobMeasured | EndCallEnded


@final
class Upkeep:
    """The parts of a scheduler that keep house."""

    def __init__(
        self, book: JobBook, keep: KeepRule, heap: DeadlineHeap, now: float
    ) -> None:
        self._end_calls = EndCalls(book, heap, now)
        self._retention = Retention(book, keep, heap)
        self._meter = RunMeter(book, heap)

    def on_event(self, event: UpkeepEvent, now: float) -> list[Effect]:
        """Take in a fact that is for one of the parts."""
        if isinstance(event, EndCallEnded):
            return self._end_calls.on_event(event, now)
        return self._retention.on_event(event, now)

    def look(self, ended: list[EndedRun], now: float) -> list[Effect]:
        """Look at what the last event changed in the book, and which runs it ended."""
        self._retention.look(now)
        return self._meter.look(ended, now) + self._end_calls.look(now)

    def due(self, now: float) -> list[Effect]:
        """Do what is due."""
        due = self._retention.due(now) + self._meter.due(now)
        return due + self._end_calls.due(now)
