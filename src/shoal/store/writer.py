"""What is written into a journal, one transaction at a time. Knows nothing of threads.

Compaction is spread over many transactions, each with a share of its rows, so that
entries which come meanwhile do not wait for all of it. Nothing of it counts until
the one row of `base` changes; what is in the way before or after is swept later.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, final

from shoal import failpoints
from shoal.store.mark import MarkFile
from shoal.store.rows import Base, Chain, Row

SHARE_ROWS: Final = 1_000
SHARE_BYTES: Final = 1 << 20
"""So much of a compaction goes into one transaction: a few milliseconds' worth."""

WAL_BYTES: Final = 8 << 20
"""About so much is written before it moves from the log into the file itself."""

COMMIT_BYTES: Final = 8_192
"""What a transaction adds to the log besides its payload, about."""

TOGETHER_MAX: Final = 16
"""Rows that one statement writes; more rows wait for the interpreter less each."""

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
"""The kind and the payload of a row that has no number yet."""


class Compact(NamedTuple):
    """Replace all rows before this by these; they may be computed while written."""

    rows: Iterable[Content]


Write = Row | Compact


@final
class Writer:
    """Appends to the two tables of one open file."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        base: Base,
        chain: Chain,
        log: Path,
        mark: MarkFile | None = None,
    ) -> None:
        """Write by `connection`, whose log is the file `log`; `mark` says how far."""
        self._mark = mark
        self.commits = 0
        self.compactions = 0
        self._connection = connection
        self._base = base
        self._chain = chain
        self._compaction: Iterator[None] | None = None
        self._logged = 0  # bytes, about, since the log was last empty
        self._log = log
        self._log_bytes = 0  # what it is known to have room for
        connection.execute(_TAIL)

    @property
    def busy(self) -> bool:
        """Whether a compaction has shares left to write."""
        return self._compaction is not None

    def commit(self, writes: Sequence[Write]) -> None:
        """Write all of this, and a share of a compaction; return when it is on disk."""
        if self._compaction is None and len(writes) <= TOGETHER_MAX:
            rows = [write for write in writes if isinstance(write, Row)]
            if rows and len(rows) == len(writes):
                self._commit_together(rows)
                return
        self._commit_apart(writes)

    def _commit_together(self, rows: Sequence[Row]) -> None:
        """Write some rows by one statement, which is a transaction of its own.

        At every statement this thread waits for the interpreter, which whoever waits
        for the disk keeps busy: five of them took three times as long.
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
        rows: list[Row] = []
        for write in writes:
            if isinstance(write, Row):
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
        """Move what is on disk from the log into the file, if it is much."""
        if self._logged >= WAL_BYTES:
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
            self._logged = 0
        if self._log_bytes < WAL_BYTES:
            self._make_room()

    def _make_room(self) -> None:
        """Let the log grow ahead of what is written into it.

        The disk syncs what lies within a file in half the time of what makes it longer.
        SQLite tells by checksums what it wrote, and takes no notice of the rest.
        """
        try:
            with self._log.open("r+b", buffering=0) as file:
                size = file.seek(0, os.SEEK_END)
                if size < WAL_BYTES:
                    file.write(_ROOM)
            self._log_bytes = size + len(_ROOM)
        except OSError:
            self._log_bytes = WAL_BYTES  # It is a favour, and no need.

    def _compact_some(self) -> None:
        if self._compaction is None:
            return
        for _ in self._compaction:
            return
        self._compaction = None
        self.compactions += 1

    def _append(self, rows: Sequence[Row]) -> None:
        if not rows:
            return
        self._connection.executemany(_INSERTS[1], map(self._sealed, rows))

    def _sealed(self, row: Row) -> tuple[int, str, bytes, bytes]:
        self._logged += len(row.payload)
        return row.seq, row.kind, self._chain.add(row), row.payload

    def _compact(self, at: Chain, contents: Iterable[Content]) -> Iterator[None]:
        """Replace all rows up to a place; each step is a share of the work."""
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
    """Remove what a compaction left that a crash cut short."""
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("DELETE FROM entries WHERE seq <= ?", (base.seq,))
    connection.execute(
        "DELETE FROM snapshot WHERE seq < ? OR seq > ?", (base.first, base.last)
    )
    connection.execute("COMMIT")


def shares(contents: Iterable[Content]) -> Iterator[list[Content]]:
    """Cut rows into lists that are small in number and in bytes."""
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
    """Go from `after` to `last` in steps of a share; the last is `last` itself."""
    yield from (min(n + SHARE_ROWS, last) for n in range(after, last, SHARE_ROWS))


def _numbered(chain: Chain, content: Content) -> tuple[int, str, bytes, bytes]:
    row = Row(chain.seq + 1, *content)
    return row.seq, row.kind, chain.add(row), row.payload
