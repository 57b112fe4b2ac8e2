"""Append entries to a durable journal and report when they are on disk.

One thread writes. Entries appended while it waits for the disk go into the next
transaction, so many clients share one wait (group commit). An entry that may wait for
a while is written with the first that may not. `on_synced` reports how far the
journal is on disk; after the first disk error, `on_failed` is called and nothing more
is written. `compact` replaces old entries by a snapshot in the background.

    journal = Journal.open(path)
    for row in journal.rows(): ...          # entries from earlier runs
    journal.start(loop.call_soon_threadsafe, on_synced=..., on_failed=...)
    seq = journal.append(kind, payload)     # later: on_synced(n), n >= seq
    journal.close()
"""

from __future__ import annotations

import math
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, final

from shoal.errors import StoreError
from shoal.store.database import BYTES_MAX, connect, disconnect, explained
from shoal.store.journal_mark import (
    Begin,
    MarkFile,
    move_away,
    read_mark,
    refuse_if_gone,
    refuse_if_older,
)
from shoal.store.rows import (
    Base,
    Chain,
    JournalRow,
    read,
    read_base,
    read_checksum,
    read_tail,
)
from shoal.store.writer import Compact, Content, Write, Writer, sweep

LAZY_S: Final = 1.0
"""How long rows wait that a crash may lose."""

BACKLOG_MAX: Final = 10_000
"""Rows that may wait for the disk before the host refuses new work (see `behind`)."""

Post = Callable[[Callable[[], None]], object]
"""Schedules a callback on the host's thread, as `call_soon_threadsafe` does."""


@final
class Journal:
    """One open journal, for use by a single thread.

    Only `open`, `rows` and `close` block. After a disk error, `on_failed` is called
    once, and nothing more is written or reported as synced: only a restart can tell
    which of the pending entries are on disk.
    """

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        base: Base,
        tail: Chain,
        mark: MarkFile | None = None,
    ) -> None:
        """Use `Journal.open`."""
        self.path = path
        self._connection = connection
        self._base = base
        log = path.with_name(f"{path.name}-wal")
        self._writer = Writer(connection, base, tail, log, mark)
        self._mark = mark
        self._last = tail.seq  # appended, perhaps not yet on disk
        self._synced = tail.seq
        self._snapshot_at = base.seq
        self._asked = 0  # compactions requested
        self._done = 0
        self._thread: threading.Thread | None = None
        self._open = True
        self._post: Post
        self._on_synced: Callable[[int], None]
        self._on_failed: Callable[[StoreError], None]
        # Shared between the threads, guarded by the condition:
        self._wake = threading.Condition()
        self._queue: list[Write] = []  # bounded by the host: see `behind`
        self._due = math.inf  # when the queue is to be written; 0 is at once
        self._closing = False
        self._failure: StoreError | None = None

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        bytes_max: int = BYTES_MAX,
        mark: Path | None = None,
        begin: Begin = "",
    ) -> Journal:
        """Open the journal exclusively, or create an empty one.

        Raises `StoreError` if another process has it open, if a newer shoal wrote it,
        or if its end is damaged; `rows` detects damage elsewhere. Also raises if the
        journal is shorter than the file `mark` recorded, unless the user chose how
        to `begin`.
        """
        known = None if mark is None else read_mark(mark)
        if begin == "new":
            known = None
            move_away(path)
        refuse_if_gone(path, known)
        connection = connect(path, bytes_max=bytes_max)
        try:
            base = read_base(connection, path)
            tail = read_tail(connection, base, path)
            if begin != "old":
                at = None if known is None else known.seq
                checksum = read_checksum(connection, base, at)
                refuse_if_older(path, known, tail.seq, checksum)
            sweep(connection, base)
        except sqlite3.Error as error:
            disconnect(connection, path)
            raise explained(error, path) from error
        except StoreError:
            disconnect(connection, path)
            raise
        marks = None if mark is None else MarkFile(mark)
        if marks is not None:
            marks.write(tail.seq, tail.head, durable=True)
        return cls(path, connection, base, tail, marks)

    def rows(self) -> Iterator[JournalRow]:
        """Yield all stored rows, before `start`; raise at the first damaged one.

        Snapshot rows come first; each carries the number of the last entry that the
        snapshot replaces.
        """
        assert self._thread is None
        base = self._base
        snapshot = Chain(base.first - 1, base.seal)
        entries = Chain(base.seq, base.checksum)
        read_ = partial(read, self._connection, path=self.path)
        try:
            for row in read_("snapshot", snapshot, base.last):
                yield row._replace(seq=base.seq)
            yield from read_("entries", entries, self._last)
        except sqlite3.Error as error:
            raise explained(error, self.path) from error

    def start(
        self,
        post: Post,
        *,
        on_synced: Callable[[int], None],
        on_failed: Callable[[StoreError], None],
    ) -> None:
        """Start the writing thread; `post` runs both callbacks."""
        assert self._thread is None
        assert self._open
        self._post, self._on_synced, self._on_failed = post, on_synced, on_failed
        # A daemon: a process that exits without `close` must not hang.
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    # Writing.

    def append(self, kind: str, payload: bytes, *, within_s: float = 0.0) -> int:
        """Queue an entry and return its number; it is on disk once `synced` reaches it.

        It may wait `within_s` for later ones, to be written together with them.
        """
        self._last += 1
        self._enqueue(JournalRow(self._last, kind, payload), within_s)
        return self._last

    def compact(self, rows: Iterable[Content]) -> None:
        """Replace all entries appended so far by a snapshot, `rows`.

        The switch is atomic: a crash leaves either the old entries or the snapshot.
        The writing thread iterates over `rows` while new entries keep being written.
        """
        assert not self.compacting
        self._asked += 1
        self._snapshot_at = self._last
        self._enqueue(Compact(rows), 0.0)

    def close(self) -> None:
        """Write the queue and release the file; raise if writing failed.

        An unfinished compaction is abandoned.
        """
        if not self._open:
            return
        self._open = False
        with self._wake:
            self._closing = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join()
        disconnect(self._connection, self.path)
        if self._mark is not None:
            self._mark.close()
        if self._failure is not None:
            raise self._failure

    # Reading.

    @property
    def last(self) -> int:
        """The number of the last appended entry."""
        return self._last

    @property
    def synced(self) -> int:
        """The number of the last entry known to be on disk."""
        return self._synced

    @property
    def behind(self) -> bool:
        """Whether the write backlog is so long that the host should refuse new work."""
        return self._last - self._synced > BACKLOG_MAX

    @property
    def since_snapshot(self) -> int:
        """Number of entries appended since the last snapshot, read again on restart."""
        return self._last - self._snapshot_at

    @property
    def compacting(self) -> bool:
        """Whether a compaction is under way."""
        return self._asked > self._done

    @property
    def commits(self) -> int:
        """Number of transactions so far; each waits for the disk once."""
        return self._writer.commits

    def _enqueue(self, write: Write, within_s: float) -> None:
        assert self._open
        due = time.monotonic() + within_s if within_s else 0.0
        with self._wake:
            if self._failure is not None:
                return
            self._queue.append(write)
            if due < self._due:
                self._due = due
                self._wake.notify()

    # Called on the host's thread.

    def _tell_synced(self, seq: int, compactions: int) -> None:
        self._done = compactions
        if seq > self._synced:
            self._synced = seq
            self._on_synced(seq)

    # The writing thread.

    def _run(self) -> None:
        try:
            self._write_all()
        except sqlite3.Error as error:
            self._fail(explained(error, self.path))
        except BaseException as error:
            self._fail(_crashed(error, self.path))
            raise

    def _write_all(self) -> None:
        seq = self._synced
        while (batch := self._take()) is not None:
            self._writer.commit(batch)
            seq = max(
                (row.seq for row in batch if isinstance(row, JournalRow)), default=seq
            )
            done = self._writer.compactions
            self._say(partial(self._tell_synced, seq, done))
            self._writer.tidy()  # After the callback, so as not to delay it.

    def _take(self) -> list[Write] | None:
        """Wait for writes and return them; None when closing with an empty queue."""
        with self._wake:
            while not (self._closing or self._writer.busy):
                wait_s = self._due - time.monotonic()
                if wait_s <= 0.0:
                    break
                self._wake.wait(None if wait_s == math.inf else wait_s)
            if self._closing and not self._queue:
                return None
            batch, self._queue = self._queue, []
            self._due = math.inf
            return batch

    def _fail(self, error: StoreError) -> None:
        with self._wake:
            self._failure = error
            self._queue.clear()
        self._say(lambda: self._on_failed(error))

    def _say(self, callback: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # The event loop may be closed.
            self._post(callback)


def _crashed(error: BaseException, path: Path) -> StoreError:
    return StoreError(
        f"the writer of the journal {path} crashed",
        kind="bug",
        because=repr(error),
        hint="start the node again, and report this",
    )
