"""A host for journals whose callbacks run when the test says so, in its own thread."""

import queue
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from shoal.errors import StoreError
from shoal.store.journal import Journal

PATIENCE_S = 20.0


class Host:
    """A started journal and what it has told."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.synced: list[int] = []
        self.failed: list[StoreError] = []
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def start(self) -> None:
        self.journal.start(
            self._inbox.put,
            on_synced=self.synced.append,
            on_failed=self.failed.append,
        )

    def run_until(self, true: Callable[[], bool]) -> None:
        while not true():
            self._inbox.get(timeout=PATIENCE_S)()

    def sync(self) -> None:
        """Wait until all that was appended is on disk, or the disk has failed."""
        last = self.journal.last
        self.run_until(lambda: bool(self.failed) or self.journal.synced >= last)

    def compact(self, *payloads: bytes) -> None:
        self.journal.compact([("kept", payload) for payload in payloads])
        self.run_until(lambda: bool(self.failed) or not self.journal.compacting)


@contextmanager
def hosted(path: Path, **options: Any) -> Iterator[Host]:  # noqa: ANN401
    """Open and start a journal; close it at the end."""
    host = Host(Journal.open(path, **options))
    host.start()
    try:
        yield host
    finally:
        host.journal.close()


def fill(path: Path, *payloads: bytes) -> None:
    """Append entries to a journal, and close it."""
    with hosted(path) as host:
        for payload in payloads:
            host.journal.append("entry", payload)


def payloads(path: Path) -> list[bytes]:
    """Return what a journal holds."""
    with closing(Journal.open(path)) as journal:
        return [row.payload for row in journal.rows()]


def tamper(path: Path, *statements: str) -> None:
    """Change the file behind the journal's back."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)
