"""Write a journal one transaction at a time; the thread is up to the caller.

Compaction is spread over many transactions, each with a share of its rows, so that new
entries do not wait for all of it. It takes effect when the single row of `base`
changes. Replaced rows are then deleted, also in shares. After a crash, `sweep` removes
unfinished snapshots and rows that are no longer needed.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, final

from shoal import failpoints
from shoal.store.journal_mark import MarkFile
from shoal.store.rows import Base, Chain, JournalRow

SHARE_ROWS: Final = 1_000
SHARE_BYTES: Final = 1 << 20
"""Limits of the share of a compaction in one transaction: a few milliseconds."""

WAL_BYTES: Final = 8 << 20
"""Approximate size of the write-ahead log before it is checkpointed."""

COMMIT_BYTES: Final = 8_192
"""Approximate bytes a transaction adds to the log besides its payload."""

TOGETHER_MAX: Final = 16
"""Most rows written by one statement; each statement waits for the interpreter."""

_TAIL: Final = (
    "CREATE TEMP TRIGGER entry_is_tail AFTER INSERT ON entries BEGIN"
    " UPDATE tail SET seq = NEW.seq, checksum = NEW.checksum; END"
)
_INSERTS: Final = tuple(
    f"INSERT INTO entries VALUES {', '.join(['(?, ?, ?, ?)'] * count)}"  # noqa: S608
    for count in range(TOGETHER_MAX + 1)
)

_ROOM: Final = bytes(256 << 10)

Content = tuple[str, bytes]
"""Kind and payload of a row without a number."""


class Compact(NamedTuple):
    """Replace all earlier rows by `rows`, which may be computed while being written."""

    rows: Iterable[Content]


Write = JournalRow | Compact


@final
class Writer:
    """Appends to the tables `entries` and `snapshot` of an open journal file."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        base: Base,
        chain: Chain,
        log: Path,
        mark: MarkFile | None = None,
    ) -> None:
        """Write by `connection`, whose log file is `log`; keep `mark` up to date."""
        self._mark = mark
        self.commits = 0
        self.compactions = 0
        self._connection = connection
        self._base = base
        self._chain = chain
        self._compaction: Iterator[None] | None = None
        self._logged = 0  # approximate bytes since the last checkpoint
        self._log = log
        self._log_bytes = 0  # size the log was extended to
        connection.execute(_TAIL)

    @property
    def busy(self) -> bool:
        """Whether a compaction is unfinished."""
        return self._compaction is not None

    def commit(self, writes: Sequence[Write]) -> None:
        """Write `writes` and a share of any compaction; return once on disk."""
        if self._compaction is None and len(writes) <= TOGETHER_MAX:
            rows = [write for write in writes if isinstance(write, JournalRow)]
            if rows and len(rows) == len(writes):
                self._commit_together(rows)
                return
        self._commit_apart(writes)

    def _commit_together(self, rows: Sequence[JournalRow]) -> None:
        """Write rows with a single statement, which is its own transaction.

        This thread waits for the interpreter lock at each statement, while the other
        threads keep it busy: five statements took three times as long.
        """
        sealed = [value for row in rows for value in self._sealed(row)]
        failpoints.reach("journal.commit")
        self._connection.execute(_INSERTS[len(rows)], sealed)
        self._committed()

    def _committed(self) -> None:
        if self._mark is not None:
            self._mark.write(self._chain.seq, self._chain.head)
        failpoints.reach("journal.synced")
        self.commits += 1
        self._logged += COMMIT_BYTES

    def _commit_apart(self, writes: Sequence[Write]) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        rows: list[JournalRow] = []
        for write in writes:
            if isinstance(write, JournalRow):
                rows.append(write)
            else:
                self._append(rows)
                rows = []
                chain = Chain(self._chain.seq, self._chain.head)
                self._compaction = self._compact(chain, write.rows)
        self._append(rows)
        self._compact_some()
        failpoints.reach("journal.commit")
        self._connection.execute("COMMIT")
        self._committed()

    def tidy(self) -> None:
        """Checkpoint the log into the file once it is large; extend the log ahead."""
        if self._logged >= WAL_BYTES:
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
            self._logged = 0
        if self._log_bytes < WAL_BYTES:
            self._make_room()

    def _make_room(self) -> None:
        """Extend the log file ahead of the writes.

        Syncing a write inside a file takes half as long as one that extends it. SQLite
        recognises its own frames by checksum and ignores the rest.
        """
        try:
            with self._log.open("r+b", buffering=0) as file:
                size = file.seek(0, os.SEEK_END)
                if size < WAL_BYTES:
                    file.write(_ROOM)
            self._log_bytes = size + len(_ROOM)
        except OSError:
            self._log_bytes = WAL_BYTES  # Only an optimisation: do not retry.

    def _compact_some(self) -> None:
        if self._compaction is None:
            return
        for _ in self._compaction:
            return
        self._compaction = None
        self.compactions += 1

    def _append(self, rows: Sequence[JournalRow]) -> None:
        if not rows:
            return
        self._connection.executemany(_INSERTS[1], map(self._sealed, rows))

    def _sealed(self, row: JournalRow) -> tuple[int, str, bytes, bytes]:
        self._logged += len(row.payload)
        return row.seq, row.kind, self._chain.add(row), row.payload

    def _compact(self, at: Chain, contents: Iterable[Content]) -> Iterator[None]:
        """Replace all rows up to `at` by `contents`, a share of the work per step."""
        old = self._base
        base = Base(at.seq, at.head, old.last + 1, old.last)
        snapshot = Chain(base.last, base.seal)
        for share in shares(contents):
            rows = [_numbered(snapshot, content) for content in share]
            self._connection.executemany(
                "INSERT INTO snapshot VALUES (?, ?, ?, ?)", rows
            )
            self._logged += sum(len(payload) for *_, payload in rows)
            yield
        failpoints.reach("journal.swap")
        base = base._replace(last=snapshot.seq).signed(snapshot.head)
        self._connection.execute(
            "UPDATE base SET seq = ?, checksum = ?, first = ?, last = ?, digest = ?",
            base,
        )
        self._base = base
        yield
        failpoints.reach("journal.swapped")
        for upto in steps(old.seq, base.seq):
            self._connection.execute("DELETE FROM entries WHERE seq <= ?", (upto,))
            yield
        for upto in steps(old.first - 1, old.last):
            self._connection.execute("DELETE FROM snapshot WHERE seq <= ?", (upto,))
            yield


def sweep(connection: sqlite3.Connection, base: Base) -> None:
    """Remove the remains of a compaction that a crash interrupted."""
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("DELETE FROM entries WHERE seq <= ?", (base.seq,))
    connection.execute(
        "DELETE FROM snapshot WHERE seq < ? OR seq > ?", (base.first, base.last)
    )
    connection.execute("COMMIT")


def shares(contents: Iterable[Content]) -> Iterator[list[Content]]:
    """Split rows into lists of at most `SHARE_ROWS` rows and about `SHARE_BYTES`."""
    share: list[Content] = []
    size = 0
    for content in contents:
        share.append(content)
        size += len(content[1])
        if len(share) == SHARE_ROWS or size >= SHARE_BYTES:
            yield share
            share, size = [], 0
    if share:
        yield share


def steps(after: int, last: int) -> Iterator[int]:
    """Yield numbers after `after` in steps of `SHARE_ROWS`, ending at `last`."""
    yield from (min(n + SHARE_ROWS, last) for n in range(after, last, SHARE_ROWS))


def _numbered(chain: Chain, content: Content) -> tuple[int, str, bytes, bytes]:
    row = JournalRow(chain.seq + 1, *content)
    return row.seq, row.kind, chain.add(row), row.payload
