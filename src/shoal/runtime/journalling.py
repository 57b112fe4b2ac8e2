"""A node's journal between the machine, which knows entries, and the disk's bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from shoal.core.compaction import compacted
from shoal.core.journal import Entry, decode, encode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shoal.core.jobs import JobBook
    from shoal.protocol.messages import Revocation
    from shoal.store.journal import Journal

COMPACT_AFTER: Final = 50_000
"""Entries since the last snapshot, after which a restart would take too long."""


@final
class NodeJournal:
    """Appends the machine's entries, and shortens the journal when it grew."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def entries(self) -> list[Entry]:
        """Return what earlier lives wrote; only before the journal is started."""
        return [decode(row.payload) for row in self._journal.rows()]

    def append(self, entry: Entry, *, durable: bool) -> int:
        """Write an entry soon; return its number."""
        kind, payload = encode(entry)
        return self._journal.append(kind, payload, durable=durable)

    @property
    def has_grown(self) -> bool:
        """Whether it is time to compact."""
        journal = self._journal
        return journal.since_snapshot > COMPACT_AFTER and not journal.compacting

    def compact(self, book: JobBook, revocations: Iterable[Revocation]) -> None:
        """Replace everything written so far by what a restart needs."""
        self._journal.compact([encode(e) for e in compacted(book, revocations)])
