"""Handing in batch jobs: at once, or when those that they wait for have ended."""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from shoal.api.documents import state_of
from shoal.cli.display.printing import has_ended
from shoal.cli.jobs.submit import pack, send_in
from shoal.cli.slurm.batch import finished
from shoal.cli.slurm.dependencies import Dependency, outlook, parse
from shoal.errors import NotFoundError, ShoalError

if TYPE_CHECKING:
    from shoal.api.client.client import Client
    from shoal.api.shoal_pb2 import SubmitReply, Task
    from shoal.cli.slurm.ledger import BatchJob, BatchLedger

CALLED_S: Final = 600.0
"""Time after the end of a job by which its call was made, or will not be."""

NEVER_MET: Final = "DependencyNeverSatisfied"


@final
class Clerk:
    """Hands in the batch jobs of one home."""

    def __init__(self, client: Client, ledger: BatchLedger, home: Path) -> None:
        self._client = client
        self._ledger = ledger
        self._home = home

    def take(self, batch: BatchJob) -> SubmitReply | None:
        """Give a job its number and hand it in, unless it waits for others.

        Raises if the node refuses it, or if it waits for what there is not.
        """
        for each in parse(batch.dependency):
            self._ledger.get(each.number)  # Raises if there is none.
        if batch.in_place:
            _make_folders(batch)
        batch.state = "held"
        self._ledger.add(batch)
        if batch.dependency:
            self.look_at(batch)
            return None
        try:
            return self._hand_in(batch)
        except ShoalError:
            batch.state = "cancelled"
            self._ledger.save(batch)
            raise

    def look_at_all(self) -> None:
        """Hand in jobs that have nothing left to wait for."""
        for batch in self._ledger.held():
            self.look_at(batch)

    def look_at(self, batch: BatchJob) -> None:
        """Hand in a job that waits, if it has nothing left to wait for."""
        found = self.outlook_of(batch)
        if found == "met":
            self._hand_in(batch)
        elif found == "never" and batch.gives_up:
            batch.state, batch.ended = "cancelled", "cancelled"
            self._ledger.save(batch)

    def outlook_of(self, batch: BatchJob) -> str:
        """Say whether what a job waits for has ended: open, met or never."""
        return outlook(parse(batch.dependency), self._state)

    def _state(self, dependency: Dependency) -> str:
        batch = self._ledger.get(dependency.number)
        if dependency.task is not None:
            return self._state_of_task(batch, dependency.task)
        if batch.state == "held":
            return ""
        if batch.ended or batch.state == "cancelled":
            return batch.ended or "cancelled"
        try:
            job = self._client.get(batch.job, tasks_max=1)
        except NotFoundError:
            return "unknown"  # It was removed, and nobody was told how it ended.
        # What it wrote is here after the call at its end, which notes that end.
        is_called = has_ended(job) and time.time() - job.ended_s > CALLED_S
        return state_of(job.state) if is_called else ""

    def _state_of_task(self, batch: BatchJob, index: int) -> str:
        if batch.state == "held":
            return ""
        with suppress(NotFoundError):
            task = task_at(self._client, batch, index)
            state = state_of(task.state)
            return state if state in ("done", "failed", "cancelled", "unknown") else ""
        return batch.ended or "unknown"

    def _hand_in(self, batch: BatchJob) -> SubmitReply:
        spec = finished(batch, self._home, sys.executable)
        packed = pack(self._client, json.dumps(spec), quiet=True)
        reply = send_in(self._client, packed, batch.job)
        batch.state = "submitted"
        self._ledger.save(batch)
        return reply


def _make_folders(batch: BatchJob) -> None:
    """Make the folders of output files, as open as the one that the job runs in.

    Tasks of a node that runs as root are users of their own, and could not share one
    that the first of them made.
    """
    for pattern in filter(None, (batch.output, batch.error)):
        parent = (Path(batch.folder) / pattern).parent
        if "%" not in str(parent) and not parent.exists():
            parent.mkdir(parents=True)
            parent.chmod(Path(batch.folder).stat().st_mode)


def task_at(client: Client, batch: BatchJob, index: int) -> Task:
    """Return the task of an array that has an index."""
    from shoal.model.spec.points import parse_array  # noqa: PLC0415 - Slow.

    indexes = list(parse_array(batch.indexes)) if batch.indexes else []
    if index not in indexes:
        raise NotFoundError(
            f"batch job {batch.number} has no task {index}",
            because=f"its array is {batch.indexes}" if indexes else "it is no array",
            hint=f"`squeue -r -j {batch.number}` lists them",
        )
    job = client.get(batch.job, tasks_max=1, tasks_from=indexes.index(index))
    return job.tasks[0]
