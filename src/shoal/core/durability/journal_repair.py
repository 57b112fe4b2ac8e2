"""Repair a journal: drop jobs whose entries cannot be replayed.

Entries are checked when they are written, so a bad one is a bug. One job must not keep
a node from starting: the job is ended, with the reason, and kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.core.durability.journal import (
    Adopted,
    Assigned,
    Cancelled,
    Ceded,
    EndCalled,
    Exited,
    Finished,
    Led,
    RetriesRenewed,
    Returned,
    RunKept,
    Saved,
    ScheduleMoved,
    SecretsSealed,
    Submitted,
    TaskKept,
)
from shoal.core.scheduling.job_book import JobBook
from shoal.model.ids import JobId

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from shoal.core.durability.journal import Entry


def weeded(entries: Sequence[Entry]) -> tuple[list[Entry], dict[JobId, str]]:
    """Return the entries that can be replayed, and a reason for each dropped job.

    A bad entry that belongs to no job raises what its replay raises.
    """
    bad: dict[JobId, str] = {}
    hopeless: set[JobId] = set()
    while True:
        kept = ended(entries, bad, hopeless)
        found = _first_bad(kept)
        if found is None:
            return kept, bad
        job, reason = found
        if job in bad:
            hopeless.add(job)
        bad[job] = reason


def active_of(entries: Sequence[Entry], jobs: Collection[JobId]) -> list[JobId]:
    """Return which of these jobs have not ended according to the entries."""
    return [job for job in jobs if _is_active(entries, job)]


def ended(
    entries: Sequence[Entry],
    reasons: Mapping[JobId, str],
    hopeless: set[JobId] | None = None,
) -> list[Entry]:
    """Return entries that end these jobs right after they were submitted."""
    kept: list[Entry] = []
    for entry in entries:
        job = job_of(entry)
        if job is None or job not in reasons:
            kept.append(entry)
        elif isinstance(entry, Submitted) and job not in (hopeless or ()):
            kept += [entry, Cancelled(job, reasons[job], entry.wall_s)]
    return kept


def job_of(entry: Entry) -> JobId | None:
    """Return the job of an entry, if it has one."""
    match entry:
        case Submitted():
            return entry.job.id
        case Cancelled() | EndCalled() | Led() | Adopted() | Ceded():
            return entry.job
        case SecretsSealed():
            return entry.job
        case ScheduleMoved():
            return entry.schedule
        case Assigned():
            return _job(entry.places[0].task) if entry.places else None
        case RunKept():
            return _job(entry.place.task)
        case Saved():
            return _job(entry.task)
        case Exited() | Returned() | RetriesRenewed() | Finished() | TaskKept():
            return _job(entry.task)
        case _:
            return None


def _is_active(entries: Sequence[Entry], job: JobId) -> bool:
    own = [entry for entry in entries if job_of(entry) == job]
    if _first_bad(own) is not None:
        return True  # Nobody can tell, and to end it again does no harm.
    book = JobBook()
    for entry in own:
        book.replay(entry, 0.0, 0.0)
    return job in book.jobs and book.jobs[job].state == "active"


def _job(task: str) -> JobId:
    return JobId(task.partition(".")[0])


def _first_bad(entries: Sequence[Entry]) -> tuple[JobId, str] | None:
    book = JobBook()
    for entry in entries:
        try:
            book.replay(entry, 0.0, 0.0)
        except Exception as error:
            job = job_of(entry)
            if job is None:
                raise
            what = f"{type(error).__name__}: {error}".rstrip(": ")
            reason = f"set aside: its journal cannot be replayed ({what})"
            return job, f"{reason}; `shoal retry {job}` runs it as a new job"
    return None
