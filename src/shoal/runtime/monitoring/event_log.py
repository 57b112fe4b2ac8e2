"""Recent events of jobs, tasks and links, for `shoal events` and the page.

A journal entry becomes an event when it is on disk, because a crash could undo it
before that. Other events are logged as they happen.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, final

from shoal.core.durability.journal import (
    Answered,
    Assigned,
    Cancelled,
    Finished,
    Judged,
    Returned,
    Revoked,
    Submitted,
)
from shoal.model.ids import JobId, NodeId, TaskId
from shoal.net.identity.petname import petname
from shoal.runtime.monitoring.change_signal import ChangeSignal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from shoal.core.durability.journal import Entry

KEPT_MAX: Final = 2_000


_Told = tuple[str, str, str, str, NodeId | None]
_ALONE: Final = frozenset({Submitted, Returned, Answered, Finished, Cancelled, Revoked})
"""Entries that one happening tells of; a gang that is assigned has several."""


_JUDGED: Final = {
    "disagreed": "disagreed with others",
    "failed": "failed where others did not",
}


class LoggedEvent(NamedTuple):
    """One event; `what` is a keyword for programs."""

    number: int
    at_s: float  # since 1970
    what: str
    text: str
    job: str = ""
    task: str = ""
    node: NodeId | None = None


class _Kept(NamedTuple):
    """A raw event. Its texts are made on demand, because few people watch."""

    number: int  # of the last happening that tells of it
    at_s: float
    said: Entry | tuple[_Told, ...]


@final
class EventLog:
    """The latest events, and a signal for followers."""

    def __init__(self) -> None:
        self._kept: deque[_Kept] = deque(maxlen=KEPT_MAX)
        self._number = 0
        self._news = ChangeSignal()

    def note(self, entry: Entry) -> None:
        """Log a journal entry that is on disk."""
        count: int = type(entry) in _ALONE
        if type(entry) is Assigned:
            count = len(entry.places)
        elif type(entry) is Judged:
            count = entry.verdict in _JUDGED
        self._add(entry, count)

    def linked(self, node: NodeId) -> None:
        """Log a new link."""
        self._add((("linked", f"{petname(node)} is linked", "", "", node),), 1)

    def lost(self, node: NodeId) -> None:
        """Log a lost link."""
        text = f"the link to {petname(node)} is lost"
        self._add((("lost", text, "", "", node),), 1)

    def mishap(self, text: str, task: TaskId) -> None:
        """Log a fault around a task; the node goes on."""
        self._add((("mishap", f"{task}: {text}", _job(task), task, None),), 1)

    def set_aside(self, job: JobId, reason: str) -> None:
        """Log a job that was set aside."""
        self._add((("set-aside", f"job {job} is {reason}", job, "", None),), 1)

    async def follow(self, latest: int, *, on: bool) -> AsyncIterator[LoggedEvent]:
        """Yield the latest events and, if `on`, all further ones."""
        first = max(0, self._number - min(latest, KEPT_MAX))
        while True:
            for kept in [each for each in self._kept if each.number > first]:
                for happening in _events_of(kept):
                    if happening.number > first:
                        yield happening
                        first = happening.number
            if not on:
                return
            if first >= self._number:
                await self._news.wait()

    def _add(self, said: Entry | tuple[_Told, ...], count: int) -> None:
        if count:
            self._number += count
            self._kept.append(_Kept(self._number, time.time(), said))
            self._news.tell()


def _events_of(kept: _Kept) -> Iterator[LoggedEvent]:
    told = kept.said if isinstance(kept.said, tuple) else tuple(_told(kept.said))
    for number, each in enumerate(told, kept.number - len(told) + 1):
        what, text, job, task, node = each
        yield LoggedEvent(number, kept.at_s, what, text, job, task, node)


def _told(entry: Entry) -> Iterator[_Told]:
    match entry:
        case Submitted():
            job = entry.job
            yield (
                "submitted",
                f"job {job.id} ({job.name}) is accepted",
                job.id,
                "",
                None,
            )
        case Assigned():
            for place in entry.places:
                where = petname(place.worker)
                text = f"{place.task} goes to {where}"
                yield "assigned", text, _job(place.task), place.task, place.worker
        case Answered():
            task, worker = entry.task, entry.answer.worker
            text = f"{task} is answered by {petname(worker)}, to be compared"
            yield "answered", text, _job(task), task, worker
        case Judged():
            if entry.verdict in _JUDGED:
                task, worker = entry.task, entry.worker
                text = f"{petname(worker)} {_JUDGED[entry.verdict]} about {task}"
                yield entry.verdict, text, _job(task), task, worker
        case Returned():
            text = f"{entry.task} waits again: {entry.reason or 'no result'}"
            yield "returned", text, _job(entry.task), entry.task, None
        case Finished():
            why = entry.reason or (entry.outcome.reason if entry.outcome else "")
            text = f"{entry.task} is {entry.state}" + (f": {why}" if why else "")
            yield entry.state, text, _job(entry.task), entry.task, None
        case Cancelled():
            why = f": {entry.reason}" if entry.reason else ""
            yield "cancelled", f"job {entry.job} is cancelled{why}", entry.job, "", None
        case Revoked():
            node = entry.revocation.node
            yield "revoked", f"{petname(node)} is no member any more", "", "", node
        case _:
            return


def _job(task: TaskId) -> str:
    return task.partition(".")[0]
