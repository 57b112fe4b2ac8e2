"""A process with a journal, for tests that kill it or let its disk fail.

It numbers its entries and says on stdout which are on disk: `synced 7`. Arguments:
the file, how many entries at once, how many in all, and after how many it compacts.
"""

import os
import queue
import sys
from collections.abc import Callable
from pathlib import Path

from shoal.errors import StoreError
from shoal.store.journal import Journal
from shoal.store.rows import JournalRow


def numbers(rows: list[JournalRow]) -> list[int]:
    """Return the numbers that rows tell of; a snapshot of `n` stands for 1 to n."""
    found: list[int] = []
    for row in rows:
        number = int(row.payload.split()[0])
        found += range(1, number + 1) if row.kind == "upto" else [number]
    return found


def say(text: str) -> None:
    """Write a line at once: whatever was said before a kill has been said."""
    os.write(1, f"{text}\n".encode())


def snapshot(upto: int) -> list[tuple[str, bytes]]:
    """Return a snapshot that takes many transactions to write."""
    padding = [("padding", b"0")] * 6_000
    return [*padding, ("upto", b"%d" % upto)]


class Child:
    """Appends as fast as it is allowed to."""

    def __init__(self, journal: Journal, window: int, compact_every: int) -> None:
        self.failed: StoreError | None = None
        self._journal = journal
        self._window = window
        self._compact_every = compact_every
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def run(self, count: int) -> None:
        """Append until there are so many entries, all on disk, or the disk fails."""
        journal = self._journal
        journal.start(
            self._inbox.put, on_synced=self._on_synced, on_failed=self._on_failed
        )
        while self.failed is None and journal.synced < count:
            while journal.last < min(count, journal.synced + self._window):
                self._append()
            self._inbox.get()()

    def _append(self) -> None:
        journal = self._journal
        seq = journal.append("number", b"%d %b" % (journal.last + 1, bytes(200)))
        due = self._compact_every and seq % self._compact_every == 0
        if due and not journal.compacting:
            journal.compact(snapshot(seq))

    def _on_synced(self, seq: int) -> None:
        say(f"synced {seq}")

    def _on_failed(self, error: StoreError) -> None:
        self.failed = error


def main() -> None:
    """Run to the end of the count, of the disk, or of this process."""
    path, window, count, compact_every = sys.argv[1:]
    try:
        journal = Journal.open(Path(path))
        say(f"open {journal.last}")
        child = Child(journal, int(window), int(compact_every))
        child.run(int(count))
        commits = journal.commits
        journal.close()
        say(f"closed {commits}")
    except StoreError as error:
        say(f"{error.kind} {error}")
        sys.exit(3)


if __name__ == "__main__":
    main()
