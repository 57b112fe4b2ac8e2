"""The numbers of Slurm, and the jobs that they stand for, in a file of the home.

Slurm's users go by numbers, which they get before a job that depends on others is
handed in. So numbers are drawn here, never twice, and are on disk before anything else
happens: a job's id too, so that handing it in again after a crash makes no second job.

The tasks of an array have numbers of their own, the ones from that of the array on.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final, Literal, final

import msgspec

from shoal.errors import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

FILE: Final = "slurm.db"
PATIENCE_S: Final = 30.0
NUMBERS_MAX: Final = 2**31

BatchState = Literal["held", "submitted", "cancelled"]
"""Held: its dependencies are open, and the node does not know it yet."""


class BatchJob(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One job as `sbatch` took it."""

    number: int = 0
    count: int = 1  # of its tasks, if it is an array
    job: str  # its id in the shoal
    state: BatchState = "submitted"
    ended: str = ""  # the state in which it ended, once that was told
    spec: dict[str, Any]
    name: str
    user: str
    folder: str  # that it was submitted in, or is to run in
    command: str  # the script, for people
    output: str
    error: str = ""  # empty: as `output`
    appends: bool = False
    in_place: bool = False  # it runs in a shared folder, and writes there itself
    indexes: str = ""  # of an array, in the form of a spec
    dependency: str = ""
    gives_up: bool = False  # it is cancelled once its dependencies cannot be met
    partition: str = ""
    account: str = ""
    cpus: int = 1  # of all its nodes
    nodes: int = 1
    memory: str = ""
    time_limit: str = ""
    submitted_s: float = 0.0

    @property
    def is_array(self) -> bool:
        """Whether its tasks go by an index."""
        return bool(self.indexes)


@final
class BatchLedger:
    """All jobs of one home that came by `sbatch`."""

    def __init__(self, home: Path) -> None:
        """Open it, or make it."""
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = home / FILE
        with closing(self._open()) as base, base:
            base.execute(
                "CREATE TABLE IF NOT EXISTS jobs (number INTEGER PRIMARY KEY,"
                " last INTEGER NOT NULL, job TEXT NOT NULL UNIQUE,"
                " state TEXT NOT NULL, name TEXT NOT NULL, batch TEXT NOT NULL)"
            )

    def add(self, batch: BatchJob) -> BatchJob:
        """Give a job the next numbers; return it with the first."""
        with closing(self._open()) as base, base:
            base.execute("BEGIN IMMEDIATE")
            [used] = base.execute("SELECT MAX(last) FROM jobs").fetchone()
            batch.number = (used or 0) + 1
            self._write(base, batch)
        return batch

    def save(self, batch: BatchJob) -> None:
        """Note what has become of a job."""
        with closing(self._open()) as base, base:
            self._write(base, batch)

    def get(self, number: int) -> BatchJob:
        """Return the job that has a number, or whose task has it."""
        found = None
        if number < NUMBERS_MAX:
            found = self._rows("number <= ? AND last >= ?", (number, number))
        if not found:
            raise NotFoundError(
                f"there is no batch job {number}",
                because="no `sbatch` of this home has said that number",
                hint="`squeue -t all` lists them",
            )
        return found[0]

    def held(self) -> list[BatchJob]:
        """Return the jobs that wait for others, oldest first."""
        return self._rows("state = 'held'", ())

    def of(self, jobs: Iterable[str]) -> dict[str, BatchJob]:
        """Return what is known of jobs of the shoal, by their ids."""
        wanted = set(jobs)
        return {b.job: b for b in self._rows("1", ()) if b.job in wanted}

    def _rows(self, which: str, values: tuple[int, ...]) -> list[BatchJob]:
        with closing(self._open()) as base:
            rows = base.execute(
                f"SELECT batch FROM jobs WHERE {which} ORDER BY number",  # noqa: S608
                values,
            ).fetchall()
        return [msgspec.json.decode(text, type=BatchJob) for (text,) in rows]

    def _write(self, base: sqlite3.Connection, batch: BatchJob) -> None:
        last = batch.number + batch.count - 1
        text = msgspec.json.encode(batch).decode()
        base.execute(
            "INSERT OR REPLACE INTO jobs VALUES (?, ?, ?, ?, ?, ?)",
            (batch.number, last, batch.job, batch.state, batch.name, text),
        )

    def _open(self) -> sqlite3.Connection:
        base = sqlite3.connect(self._path, timeout=PATIENCE_S)
        base.execute("PRAGMA synchronous = FULL")
        return base
