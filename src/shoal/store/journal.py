"""The journal of a node: what is appended is on disk before anybody is told so.

One thread writes. Whatever was appended while it waited for the disk goes into the
next transaction, so many clients share the wait (group commit).

    journal = Journal.open(path)
    for row in journal.rows(): ...          # what an earlier life left
    journal.start(loop.call_soon_threadsafe, on_synced=..., on_failed=...)
    seq = journal.append(kind, payload)     # on_synced(n) with n >= seq will follow
    journal.close()
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, final

from shoal.errors import StoreError
from shoal.store.database import BYTES_MAX, connect, disconnect, explained
from shoal.store.mark import (
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
    Row,
    read,
    read_base,
    read_checksum,
    read_tail,
)
from shoal.store.writer import Compact, Content, Write, Writer, sweep

LAZY_S: Final = 1.0
"""Rows that are not durable wait so long for one that is, then go to disk alone."""

BACKLOG_MAX: Final = 10_000
"""Rows that wait for the disk. With more, a host takes no new work: see `behind`."""

Post = Callable[[Callable[[], None]], object]
"""Runs something in the thread of the host soon, as `call_soon_threadsafe` does."""


@final
class Journal:
    """One open journal. All its methods are for one thread, which they never block.

    `open`, `rows` and `close` do block. If the disk refuses anything, `on_failed`
    is called once, nothing is written any more and nothing more counts as synced:
    what of it is on disk only a restart can tell.
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
        self._last = tail.seq  # appended, but perhaps not on disk
        self._synced = tail.seq
        self._snapshot_at = base.seq
        self._asked = 0  # compactions
        self._done = 0
        self._thread: threading.Thread | None = None
        self._open = True
        self._post: Post
        self._on_synced: Callable[[int], None]
        self._on_failed: Callable[[StoreError], None]
        # Between the threads, guarded by the condition:
        self._wake = threading.Condition()
        self._queue: list[Write] = []  # bounded by the host: see `behind`
        self._urgent = False  # something in the queue should not wait
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
        """Open the journal for this process alone, or make an empty one.

        Raises `StoreError` if another process has it, if it is of a newer shoal, or
        if its end is damaged. Damage elsewhere is found by `rows`. The file `mark`
        says how far it was; if it is not so far now, that raises too, unless the user
        has said how to `begin`.
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

    def rows(self) -> Iterator[Row]:
        """Go through what is there, before `start`; raise where it is not whole.

        The rows of a snapshot come first, and bear the number of the last entry that
        they stand for.
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
        """Begin to write; both callbacks are run by `post`."""
        assert self._thread is None
        assert self._open
        self._post, self._on_synced, self._on_failed = post, on_synced, on_failed
        # If the process ends without `close`, that is a crash, and no wait.
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    # Writing.

    def append(self, kind: str, payload: bytes, *, durable: bool = True) -> int:
        """Queue an entry; return its number. It is on disk when that is synced.

        One that is not durable may wait for a later one, and be lost in a crash.
        """
        self._last += 1
        self._enqueue(Row(self._last, kind, payload), urgent=durable)
        return self._last

    def compact(self, rows: Iterable[Content]) -> None:
        """Replace everything appended so far by `rows`, as if it had never been.

        It happens at once or, after a crash, not at all. `rows` is read by the
        writing thread, while other entries go on being written.
        """
        assert not self.compacting
        self._asked += 1
        self._snapshot_at = self._last
        self._enqueue(Compact(rows), urgent=True)

    def close(self) -> None:
        """Write what is queued and let the file go; raise if that failed.

        A compaction that is not complete is given up.
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
        """The number of the last entry that was appended."""
        return self._last

    @property
    def synced(self) -> int:
        """The number of the last entry that is known to be on disk."""
        return self._synced

    @property
    def behind(self) -> bool:
        """Whether so much waits for the disk that the host should take no new work."""
        return self._last - self._synced > BACKLOG_MAX

    @property
    def since_snapshot(self) -> int:
        """How many entries a restart would read besides the snapshot."""
        return self._last - self._snapshot_at

    @property
    def compacting(self) -> bool:
        """Whether a compaction is under way."""
        return self._asked > self._done

    @property
    def commits(self) -> int:
        """How many transactions there were; each waits for the disk once."""
        return self._writer.commits

    def _enqueue(self, write: Write, *, urgent: bool) -> None:
        assert self._open
        with self._wake:
            if self._failure is not None:
                return
            first = not self._queue
            self._queue.append(write)
            if first or (urgent and not self._urgent):
                self._wake.notify()
            self._urgent = self._urgent or urgent

    # The host's thread again.

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
            seq = max((row.seq for row in batch if isinstance(row, Row)), default=seq)
            done = self._writer.compactions
            self._say(partial(self._tell_synced, seq, done))
            self._writer.tidy()  # After the news, which wait for nothing else.

    def _take(self) -> list[Write] | None:
        """Wait for something to do; None if there never will be."""
        with self._wake:
            while not (self._urgent or self._closing or self._writer.busy):
                if not self._wake.wait(LAZY_S if self._queue else None):
                    break
            if self._closing and not self._queue:
                return None
            batch, self._queue = self._queue, []
            self._urgent = False
            return batch

    def _fail(self, error: StoreError) -> None:
        with self._wake:
            self._failure = error
            self._queue.clear()
        self._say(lambda: self._on_failed(error))

    def _say(self, callback: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # A loop that was closed hears no more.
            self._post(callback)


def _crashed(error: BaseException, path: Path) -> StoreError:
    return StoreError(
        f"the writer of the journal {path} crashed",
        kind="bug",
        because=repr(error),
        hint="start the node again, and report this",
    )
