"""What happened to jobs, tasks and links, as people read it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

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
from shoal.model.ids import NodeId, TaskId
from shoal.net.identity.petname import petname

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shoal.core.durability.journal import Entry

Told = tuple[str, str, str, str, NodeId | None]
ALONE: Final = frozenset({Submitted, Returned, Answered, Finished, Cancelled, Revoked})
"""Entries that one happening tells of; a gang that is assigned has several."""


ENDS: Final = {"failed": "failed", "cancelled": "was cancelled"}
JUDGED: Final = {
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


class KeptEvent(NamedTuple):
    """A raw event. Its texts are made on demand, because few people watch."""

    number: int  # of the last happening that tells of it
    at_s: float
    said: Entry | tuple[Told, ...]


def count_of(entry: Entry) -> int:
    """Return how many events a journal entry tells of."""
    if type(entry) is Assigned:
        return len(entry.places)
    if type(entry) is Judged:
        return int(entry.verdict in JUDGED)
    return int(type(entry) in ALONE)


def events_of(kept: KeptEvent) -> Iterator[LoggedEvent]:
    """Go through what a raw event tells of."""
    told = kept.said if isinstance(kept.said, tuple) else tuple(_told(kept.said))
    for number, each in enumerate(told, kept.number - len(told) + 1):
        what, text, job, task, node = each
        yield LoggedEvent(number, kept.at_s, what, text, job, task, node)


def _told(entry: Entry) -> Iterator[Told]:
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
                yield "assigned", text, job_of(place.task), place.task, place.worker
        case Answered():
            task, worker = entry.task, entry.answer.worker
            text = f"{task} is answered by {petname(worker)}, to be compared"
            yield "answered", text, job_of(task), task, worker
        case Judged():
            if entry.verdict in JUDGED:
                task, worker = entry.task, entry.worker
                text = f"{petname(worker)} {JUDGED[entry.verdict]} about {task}"
                yield entry.verdict, text, job_of(task), task, worker
        case Returned():
            text = f"{entry.task} waits again: {entry.reason or 'no result'}"
            yield "returned", text, job_of(entry.task), entry.task, None
        case Finished():
            why = entry.reason or (entry.outcome.reason if entry.outcome else "")
            end = ENDS.get(entry.state, f"is {entry.state}")
            text = f"{entry.task} {end}" + (f": {why}" if why else "")
            yield entry.state, text, job_of(entry.task), entry.task, None
        case Cancelled():
            why = f": {entry.reason}" if entry.reason else ""
            yield "cancelled", f"job {entry.job} is cancelled{why}", entry.job, "", None
        case Revoked():
            node = entry.revocation.node
            yield "revoked", f"{petname(node)} is no member any more", "", "", node
        case _:
            return


def job_of(task: TaskId) -> str:
    """Return the id of a task's job."""
    return task.partition(".")[0]
