"""Recent events of jobs, tasks and links, for `shoal events` and the page.

A journal entry becomes an event when it is on disk, because a crash could undo it
before that. Other events are logged as they happen. The latest are in memory, and in a
file for the next life of the node.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING, Final, final

from shoal.net.identity.petname import petname
from shoal.runtime.monitoring.change_signal import ChangeSignal
from shoal.runtime.monitoring.logged_events import (
    KeptEvent,
    LoggedEvent,
    Told,
    count_of,
    events_of,
    job_of,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from shoal.core.durability.journal import Entry
    from shoal.model.ids import JobId, NodeId, TaskId
    from shoal.runtime.monitoring.event_file import EventFile

KEPT_MAX: Final = 2_000


@final
class EventLog:
    """The latest events, and a signal for followers."""

    def __init__(self, file: EventFile | None = None) -> None:
        """Keep events in `file` too, if there is one."""
        self._kept: deque[KeptEvent] = deque(maxlen=KEPT_MAX)
        self._number = 0
        self._news = ChangeSignal()
        self._file = file

    async def load(self) -> None:
        """Begin with the events of earlier lives."""
        if self._file is None:
            return
        for event in await asyncio.to_thread(self._file.read, KEPT_MAX):
            self._number = max(self._number + 1, event.number)
            told = (event.what, event.text, event.job, event.task, event.node)
            self._kept.append(KeptEvent(self._number, event.at_s, (told,)))

    async def close(self) -> None:
        """Write what is not on disk yet."""
        if self._file is not None:
            await self._file.close()

    def note(self, entry: Entry) -> None:
        """Log a journal entry that is on disk."""
        self._add(entry, count_of(entry))

    def linked(self, node: NodeId) -> None:
        """Log a new link."""
        self._add((("linked", f"{petname(node)} is linked", "", "", node),), 1)

    def lost(self, node: NodeId) -> None:
        """Log a lost link."""
        text = f"the link to {petname(node)} is lost"
        self._add((("lost", text, "", "", node),), 1)

    def mishap(self, text: str, task: TaskId) -> None:
        """Log a fault around a task; the node goes on."""
        self._add((("mishap", f"{task}: {text}", job_of(task), task, None),), 1)

    def set_aside(self, job: JobId, reason: str) -> None:
        """Log a job that was set aside."""
        self._add((("set-aside", f"job {job} is {reason}", job, "", None),), 1)

    async def follow(self, latest: int, *, on: bool) -> AsyncIterator[LoggedEvent]:
        """Yield the latest events and, if `on`, all further ones."""
        first = max(0, self._number - min(latest, KEPT_MAX))
        while True:
            for kept in [each for each in self._kept if each.number > first]:
                for happening in events_of(kept):
                    if happening.number > first:
                        yield happening
                        first = happening.number
            if not on:
                return
            if first >= self._number:
                await self._news.wait()

    def _add(self, said: Entry | tuple[Told, ...], count: int) -> None:
        if count:
            self._number += count
            kept = KeptEvent(self._number, time.time(), said)
            self._kept.append(kept)
            if self._file is not None:
                self._file.add(kept)
            self._news.tell()
