"""The node's journal: encode the machine's entries and track which are on disk."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Final, final

from shoal import failpoints
from shoal.core.durability.compaction import compacted
from shoal.core.durability.journal import (
    Cancelled,
    Entry,
    Finished,
    RestEnded,
    decode,
    encode,
)
from shoal.model.ids import JobId
from shoal.store.journal import LAZY_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from shoal.core.records.records import JobRecord
    from shoal.core.scheduling.job_book import JobBook
    from shoal.protocol.messages import Revocation
    from shoal.store.journal import Journal

COMPACT_AFTER: Final = 50_000
"""Entries since the last snapshot, after which a restart would take too long."""


@final
class NodeJournal:
    """Appends entries and compacts the journal when it has grown."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._ends: deque[tuple[int, JobId]] = deque()  # not on disk yet
        self._unsafe: Counter[JobId] = Counter()
        self._kinds: deque[tuple[int, str]] = deque()  # for failpoints only
        self._untold: deque[tuple[int, Entry]] = deque()

    def entries(self) -> list[Entry]:
        """Return the entries of earlier runs; call it before the journal starts."""
        return [decode(row.payload) for row in self._journal.rows()]

    def append(self, entry: Entry, *, durable: bool, within_s: float = 0.0) -> int:
        """Write an entry, within this time if it is durable; return its number."""
        kind, payload = encode(entry)
        failpoints.reach(f"record.{kind}")
        number = self._journal.append(
            kind, payload, within_s=within_s if durable else LAZY_S
        )
        if (job := _ends_some_of(entry)) is not None:
            self._ends.append((number, job))
            self._unsafe[job] += 1
        self._untold.append((number, entry))
        if failpoints.ARMED is not None:
            self._kinds.append((number, kind))
        return number

    def reach_kept(self, number: int) -> None:
        """Reach the failpoints of entries up to `number`, which are on disk."""
        while self._kinds and self._kinds[0][0] <= number:
            failpoints.reach(f"kept.{self._kinds.popleft()[1]}")

    def synced(self, number: int) -> set[JobId]:
        """Note that entries up to `number` are on disk.

        Return the jobs that ended with these entries, or had a task end.
        """
        jobs: set[JobId] = set()
        while self._ends and self._ends[0][0] <= number:
            job = self._ends.popleft()[1]
            jobs.add(job)
            self._unsafe[job] -= 1
            if not self._unsafe[job]:
                del self._unsafe[job]
        return jobs

    def kept(self, number: int) -> Iterator[Entry]:
        """Return the entries up to `number` that were not returned before."""
        while self._untold and self._untold[0][0] <= number:
            yield self._untold.popleft()[1]

    def is_safe(self, record: JobRecord) -> bool:
        """Whether the ends of a job and its tasks, if any, are all on disk."""
        return record.job.id not in self._unsafe

    @property
    def has_grown(self) -> bool:
        """Whether it is time to compact."""
        journal = self._journal
        return journal.since_snapshot > COMPACT_AFTER and not journal.compacting

    def compact(
        self,
        book: JobBook,
        revocations: Iterable[Revocation],
        others: Iterable[Entry] = (),
    ) -> None:
        """Replace everything written so far by what a restart needs."""
        self._journal.compact(map(encode, compacted(book, revocations, others)))


def _ends_some_of(entry: Entry) -> JobId | None:
    """Return the job of which an entry ends tasks, if it does."""
    match entry:
        case Finished():
            return JobId(entry.task.partition(".")[0])
        case RestEnded():
            return JobId(entry.group.partition(".")[0])
        case Cancelled():
            return entry.job
        case _:
            return None
