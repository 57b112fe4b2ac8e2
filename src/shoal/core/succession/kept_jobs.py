"""What a node must remember of kept jobs through a crash.

Logs of jobs that others schedule, the terms that it promised, and which jobs are over
or went to another scheduler; of these two it remembers the latest `OVER_MAX`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar, final

import msgspec

from shoal.core.durability.journal import Ceded, Entry, JobKept, KeptOver, Led, Vowed
from shoal.model.ids import JobId, NodeId

if TYPE_CHECKING:
    from collections.abc import Iterable

OVER_MAX: Final = 1_000

T = TypeVar("T")


class KeptLog(msgspec.Struct, kw_only=True):
    """The log of a job of another scheduler, and what of the next one has come."""

    term: int = 0
    leader: NodeId = NodeId("")
    members: tuple[NodeId, ...] = ()
    entries: list[bytes] = []
    next_term: int = 0  # beyond `term` while the log of a new leader is incomplete
    next_base: int = 0
    next_entries: list[bytes] = []
    heard_at: float = 0.0

    @property
    def latest(self) -> int:
        """The highest term of a leader that was heard."""
        return max(self.term, self.next_term)

    def have(self, term: int) -> int:
        """Return how many entries of a term's log are here."""
        if term == self.term:
            return len(self.entries)
        return len(self.next_entries) if term == self.next_term else 0

    def take(self, entry: JobKept) -> None:
        """Add entries; a new log counts once it is whole."""
        self.leader, self.members = entry.leader, entry.members
        if entry.term == self.term:
            self.entries += entry.entries
            return
        if entry.term != self.next_term:
            self.next_term, self.next_entries = entry.term, []
        self.next_base = entry.base
        self.next_entries += entry.entries
        if len(self.next_entries) >= self.next_base:
            self.term, self.entries = self.next_term, self.next_entries
            self.next_term, self.next_entries = 0, []


@final
class KeptJobs:
    """Logs, promises and ends; every change is a journal entry."""

    def __init__(self, journal: Iterable[Entry] = ()) -> None:
        """Replay the entries of earlier lives; others than its own are left out."""
        self.logs: dict[JobId, KeptLog] = {}
        self.vows: dict[JobId, Vowed] = {}
        self.over: dict[JobId, None] = {}
        self.ceded: dict[JobId, Ceded] = {}
        for entry in journal:
            self.take(entry)

    def take(self, entry: Entry) -> None:
        """Note what an entry says."""
        match entry:
            case JobKept():
                self.logs.setdefault(entry.job, KeptLog()).take(entry)
            case Vowed():
                self.vows[entry.job] = entry
            case Led():
                self._forget(entry.job)
                self.ceded.pop(entry.job, None)
            case Ceded():
                _remember(self.ceded, entry.job, entry)
            case KeptOver():
                self._forget(entry.job)
                _remember(self.over, entry.job, None)
            case _:
                pass

    def entries(self) -> list[Entry]:
        """Return entries that say the same in a compacted journal."""
        found: list[Entry] = [*self.ceded.values()]
        for job, log in self.logs.items():
            whole, about = tuple(log.entries), (log.leader, log.members)
            found.append(JobKept(job, log.term, *about, 0, 0, whole))
            if log.next_term:
                new, base = tuple(log.next_entries), log.next_base
                found.append(JobKept(job, log.next_term, *about, base, 0, new))
        found += self.vows.values()
        return found + [KeptOver(job) for job in self.over]

    def _forget(self, job: JobId) -> None:
        self.logs.pop(job, None)
        self.vows.pop(job, None)


def _remember(table: dict[JobId, T], job: JobId, value: T) -> None:
    table.pop(job, None)
    table[job] = value
    if len(table) > OVER_MAX:
        del table[next(iter(table))]
