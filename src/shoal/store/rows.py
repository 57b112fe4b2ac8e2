"""Read journal rows and verify the chain of checksums that links them.

The checksum of a row covers the row and the previous checksum. So reading detects any
row that was altered, lost or moved. The single row of `tail` names the last entry, so
that a truncated end is detected too; the single row of `base` says which entries the
snapshot replaces.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, final

from shoal.errors import StoreError

CHECKSUM_BYTES: Final = 16

TAIL_ROWS: Final = 1_000
"""Entries at the end that are verified when a journal is opened."""

Table = Literal["entries", "snapshot"]

_SELECT: Final[dict[Table, str]] = {
    "entries": "SELECT * FROM entries WHERE seq BETWEEN ? AND ? ORDER BY seq",
    "snapshot": "SELECT * FROM snapshot WHERE seq BETWEEN ? AND ? ORDER BY seq",
}


class JournalRow(NamedTuple):
    """One entry; `kind` is for people who inspect the file."""

    seq: int
    kind: str
    payload: bytes


class Base(NamedTuple):
    """Where the entries begin: after entry `seq`, which had `checksum`.

    Snapshot rows `first` to `last` replace all entries up to `seq`. `digest` covers
    these fields and the checksum of the last snapshot row.
    """

    seq: int
    checksum: bytes
    first: int
    last: int
    digest: bytes = b""

    @property
    def seal(self) -> bytes:
        """The first link of the snapshot's chain, which ties it to `seq`."""
        return link(self.checksum, JournalRow(self.seq, "snapshot", b""))

    def signed(self, head: bytes) -> Base:
        """Return a copy with its digest; `head` is the snapshot's last checksum."""
        payload = b"%b %d %d" % (self.checksum, self.first, self.last)
        return self._replace(digest=link(head, JournalRow(self.seq, "base", payload)))


def link(previous: bytes, row: JournalRow) -> bytes:
    """Return the checksum of `row`, given the checksum of the row before it."""
    kind = row.kind.encode()
    head = b"%b %d %d %b " % (previous, row.seq, len(kind), kind)
    return blake2b(head + row.payload, digest_size=CHECKSUM_BYTES).digest()


_EMPTY: Final = Base(0, bytes(CHECKSUM_BYTES), 1, 0)
EMPTY: Final = _EMPTY.signed(_EMPTY.seal)


@final
class Chain:
    """A position in a chain of rows: the number and checksum of the last row."""

    def __init__(self, seq: int, head: bytes) -> None:
        self.seq = seq
        self.head = head

    def add(self, row: JournalRow) -> bytes:
        """Append a row; return its checksum."""
        assert row.seq == self.seq + 1
        self.seq, self.head = row.seq, link(self.head, row)
        return self.head


def read(
    connection: sqlite3.Connection, table: Table, chain: Chain, last: int, path: Path
) -> Iterator[JournalRow]:
    """Yield and verify the rows after `chain` up to `last`; raise at damage."""
    found = connection.execute(_SELECT[table], (chain.seq + 1, last))
    for seq, kind, checksum, payload in found:
        if seq != chain.seq + 1:
            because = f"rows {chain.seq + 1} to {seq - 1} are missing"
            raise _damaged(path, table, chain, because)
        if not isinstance(kind, str) or not isinstance(payload, bytes):
            because = "it holds values of the wrong types"
            raise _damaged(path, table, chain, because)
        row = JournalRow(seq, kind, payload)
        head = link(chain.head, row)
        if head != checksum:
            because = "its checksum does not fit what it holds and what comes before"
            raise _damaged(path, table, chain, because)
        chain.seq, chain.head = seq, head
        yield row
    if chain.seq != last:
        because = f"rows {chain.seq + 1} to {last} are missing"
        raise _damaged(path, table, chain, because)


def read_base(connection: sqlite3.Connection, path: Path) -> Base:
    """Return where the entries begin; raise if that row is damaged."""
    found = _one(connection, "SELECT * FROM base")
    base = Base(*found) if _types(found) == (int, bytes, int, int, bytes) else None
    head = base.seal if base is not None else b""
    if base is not None and base.last >= base.first:
        head = _checksum(connection, "snapshot", base.last) or b""
    if base is None or base.signed(head) != base:
        because = "its checksum does not fit"
        raise damaged(path, "the place where the entries begin", because)
    return base


def read_tail(connection: sqlite3.Connection, base: Base, path: Path) -> Chain:
    """Verify the last entries; return the chain at their end."""
    found = _one(connection, "SELECT * FROM tail")
    if _types(found) != (int, bytes) or found[0] < base.seq:
        because = "it names no entry"
        raise damaged(path, "the place where the entries end", because)
    last, head = found
    chain = Chain(base.seq, base.checksum)
    before = last - TAIL_ROWS
    if before > base.seq and (checksum := _checksum(connection, "entries", before)):
        chain = Chain(before, checksum)
    for _ in read(connection, "entries", chain, last, path):
        pass
    [beyond] = connection.execute("SELECT max(seq) > ? FROM entries", (last,))
    if chain.head != head or beyond == (1,):
        because = f"row {last} is not the last, or not the one that was written"
        raise damaged(path, "the place where the entries end", because)
    return chain


def read_checksum(
    connection: sqlite3.Connection, base: Base, seq: int | None
) -> bytes | None:
    """Return the checksum of an entry; None if it was compacted away."""
    if seq is None:
        return None
    return base.checksum if seq == base.seq else _checksum(connection, "entries", seq)


def _checksum(connection: sqlite3.Connection, table: Table, seq: int) -> bytes | None:
    for row in connection.execute(_SELECT[table], (seq, seq)):
        return row[2] if isinstance(row[2], bytes) else None
    return None


def _one(connection: sqlite3.Connection, select: str) -> tuple[Any, ...]:
    """Return the only row of a table; empty if it is missing."""
    found: tuple[Any, ...] | None = connection.execute(select).fetchone()
    return found or ()


def _types(values: tuple[object, ...]) -> tuple[type, ...]:
    return tuple(type(value) for value in values)


def damaged(path: Path, where: str, because: str) -> StoreError:
    """Return the error for a damaged file, with a hint how to recover."""
    return StoreError(
        f"{where} in the journal {path} is damaged",
        kind="damaged",
        because=because,
        hint=f"put a copy of {path.name} in its place, or start without the jobs in "
        "it by `shoal up --journal new`; see also what the disk's own log says",
    )


def _damaged(path: Path, table: Table, chain: Chain, because: str) -> StoreError:
    return damaged(path, f"row {chain.seq + 1} of '{table}'", because)
