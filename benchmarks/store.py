"""Measure the journal: durable appends a second, and how long a restart takes.

A client appends an entry and waits until it is on disk before it appends the next. A
restart opens the journal, checks and decodes every entry, and replays it into a book.

Run: python benchmarks/store.py [FOLDER] >> benchmarks/results.jsonl
FOLDER is on the disk to measure; a temporary one unless told. Compare ratios of
lines from one run: machines differ, and other work disturbs. `raw` is what the disk
itself does: one write and one sync after the other, without a journal.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from shoal.core.durability.compaction import compacted
from shoal.core.durability.journal import (
    Assigned,
    AttemptPlace,
    Entry,
    Finished,
    Submitted,
)
from shoal.core.durability.journal import decode as decode_entry
from shoal.core.durability.journal import encode as encode_entry
from shoal.core.scheduling.job_book import JobBook
from shoal.errors import StoreError
from shoal.model.ids import (
    Attempt,
    GroupId,
    JobId,
    LeaseId,
    NodeId,
    OwnerId,
    TaskId,
)
from shoal.model.job import Group, Job, Task, Work
from shoal.model.resources import Profile
from shoal.protocol.messages import Outcome
from shoal.store.journal import LAZY_S, Journal

CLIENTS = (1, 64)
APPEND_S = 3.0
JOBS = 10_000
TASKS = 100_000
RUNNING = 1_000
NODE = NodeId("s")


def show(**line: object) -> None:
    """Print one line of results."""
    print(json.dumps({"benchmark": "store", **line}), flush=True)


def quantiles(spent_ms: list[float]) -> dict[str, float]:
    """Return the middle and the slow end of some times."""
    cuts = statistics.quantiles(spent_ms, n=100)
    return {"p50_ms": round(cuts[49], 2), "p99_ms": round(cuts[98], 2)}


def job(number: int, tasks: int) -> Job:
    """Return a job of independent tasks."""
    id_ = JobId(f"job-{number:06d}")
    group = GroupId(f"{id_}.main")
    work = Work(argv=("python", "train.py", "--seed", "1"))
    return Job(
        id=id_,
        owner=OwnerId("ann"),
        groups=(
            Group(
                id=group,
                tasks=tuple(
                    Task(
                        id=TaskId(f"{group}.{n}"),
                        job=id_,
                        group=group,
                        index=n,
                        size=tasks,
                        work=work,
                        profiles=(Profile(1_000, 1 << 30),),
                    )
                    for n in range(tasks)
                ),
            ),
        ),
    )


# Appending.


class Clients:
    """Append entries, each waiting for the disk before the next."""

    def __init__(self, journal: Journal) -> None:
        self.spent_ms: list[float] = []
        self._journal = journal
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._loop = asyncio.get_running_loop()
        journal.start(
            self._loop.call_soon_threadsafe,
            on_synced=self._on_synced,
            on_failed=self._on_failed,
        )

    def _on_synced(self, seq: int) -> None:
        while self._waiting and next(iter(self._waiting)) <= seq:
            self._waiting.pop(next(iter(self._waiting))).set_result(None)

    def _on_failed(self, error: StoreError) -> None:
        raise error

    async def run(self, entry: Entry, until: float) -> None:
        """Be one client until the time is up."""
        while time.perf_counter() < until:
            start = time.perf_counter()
            seq = self._journal.append(*encode_entry(entry))
            self._waiting[seq] = self._loop.create_future()
            await self._waiting[seq]
            self.spent_ms.append((time.perf_counter() - start) * 1e3)


async def append(folder: Path, clients: int) -> None:
    """Measure so many clients that submit small jobs."""
    journal = Journal.open(folder / f"append-{clients}.db")
    many = Clients(journal)
    start, commits = time.perf_counter(), journal.commits
    until = start + APPEND_S
    entry = Submitted(job(0, 1), 0.0)
    await asyncio.gather(*(many.run(entry, until) for _ in range(clients)))
    spent_s = time.perf_counter() - start
    count = len(many.spent_ms)
    show(
        what="durable appends",
        clients=clients,
        per_s=round(count / spent_s),
        **quantiles(many.spent_ms),
        entries_per_commit=round(count / (journal.commits - commits), 1),
    )
    journal.close()


def sync_raw(folder: Path) -> None:
    """Measure the disk itself."""
    spent_ms: list[float] = []
    file = os.open(folder / "raw", os.O_CREAT | os.O_WRONLY)
    until = time.perf_counter() + APPEND_S
    while (start := time.perf_counter()) < until:
        os.write(file, bytes(4_096))
        os.fdatasync(file)
        spent_ms.append((time.perf_counter() - start) * 1e3)
    os.close(file)
    per_s = round(1e3 / statistics.fmean(spent_ms))
    show(what="raw", per_s=per_s, **quantiles(spent_ms))


# Restarting.


def history(jobs: int, tasks: int, running: int) -> Iterator[Entry]:
    """Tell of jobs of which half the tasks are done and some are running."""
    for number in range(jobs):
        yield Submitted(job(number, tasks), 0.0)
    half = jobs * tasks // 2
    for n in range(half + running):
        task = TaskId(f"job-{n % jobs:06d}.main.{n // jobs}")
        attempt = Attempt(NODE, 1, n)
        place = AttemptPlace(task, attempt, NodeId("w"), LeaseId(f"w/1/{n}"))
        yield Assigned((place,))
        if n < half:
            yield Finished(task, "done", attempt, Outcome("exited", exit_code=0))


def write(path: Path, entries: Iterator[Entry]) -> None:
    """Make a journal of a history."""
    journal = Journal.open(path)
    journal.start(
        lambda callback: callback(), on_synced=lambda _: None, on_failed=_raise
    )
    for entry in entries:
        journal.append(*encode_entry(entry), within_s=LAZY_S)
    journal.close()


def _raise(error: StoreError) -> None:
    raise error


def read(path: Path) -> tuple[JobBook, int, float]:
    """Restart from a journal; return its book, its entries and how long it took."""
    gc.collect()
    start = time.perf_counter()
    # As a node does while it starts: nothing that it makes is garbage.
    gc.disable()
    journal = Journal.open(path)
    book, count = JobBook(), 0
    for row in journal.rows():
        book.replay(decode_entry(row.payload), 0.0, 0.0)
        count += 1
    gc.enable()
    spent_s = time.perf_counter() - start
    journal.close()
    return book, count, spent_s


def compact(path: Path, book: JobBook) -> tuple[float, float]:
    """Compact a journal; return how long the host paused, and how long it took."""
    journal = Journal.open(path)
    journal.start(
        lambda callback: callback(), on_synced=lambda _: None, on_failed=_raise
    )
    start = time.perf_counter()
    journal.compact(map(encode_entry, compacted(book)))
    pause_s = time.perf_counter() - start
    while journal.compacting:
        time.sleep(0.005)
    spent_s = time.perf_counter() - start
    journal.close()
    return pause_s, spent_s


def restart(folder: Path, name: str, jobs: int, tasks: int) -> None:
    """Measure a restart from a journal as it grew, and from a compacted one."""
    path = folder / f"{jobs}-{tasks}.db"
    write(path, history(jobs, tasks, RUNNING))
    book, entries, spent_s = read(path)
    pause_s, compact_s = compact(path, book)
    _, entries_compacted, compacted_s = read(path)
    show(
        what="restart",
        journal=name,
        entries=entries,
        restart_s=round(spent_s, 2),
        compact_s=round(compact_s, 2),
        compact_pause_s=round(pause_s, 3),
        entries_compacted=entries_compacted,
        restart_compacted_s=round(compacted_s, 2),
        file_mib=round(path.stat().st_size / 2**20, 1),
    )


def main() -> None:
    """Measure on the disk of the folder that is named, or of a temporary one."""
    place = sys.argv[1] if len(sys.argv) > 1 else None
    with tempfile.TemporaryDirectory(dir=place) as name:
        folder = Path(name)
        sync_raw(folder)
        for clients in CLIENTS:
            asyncio.run(append(folder, clients))
        restart(folder, f"{JOBS} jobs of 1 task", JOBS, 1)
        restart(folder, f"{JOBS} jobs, {TASKS} tasks", JOBS, TASKS // JOBS)
        restart(folder, f"1 job of {TASKS} tasks", 1, TASKS)


if __name__ == "__main__":
    main()
