"""The end of a batch job: its output becomes files, and those that waited go on.

The node calls this at the end of each batch job, and again until it succeeds.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from shoal.api import shoal_pb2 as pb
from shoal.api.client.shipping import take_outputs
from shoal.api.documents import state_of
from shoal.cli.slurm.formats import file_name

if TYPE_CHECKING:
    from shoal.api.client.client import Client
    from shoal.cli.slurm.ledger import BatchJob, BatchLedger
    from shoal.cli.slurm.submitting import Clerk


def settle(client: Client, ledger: BatchLedger, clerk: Clerk, batch: BatchJob) -> None:
    """Write what a job left, note how it ended, and hand in who waited for it."""
    job = client.get(batch.job, tasks_max=batch.count)
    try:
        if not batch.in_place:
            write_output(client, batch, job)
            folder = Path(batch.folder)
            if (kept := client.outputs(job.id)).tasks and folder.is_dir():
                take_outputs(kept, client, folder, as_left=True)
    finally:  # Who waited must not wait for a full disk.
        batch.ended = state_of(job.state)
        ledger.save(batch)
        clerk.look_at_all()


def write_output(client: Client, batch: BatchJob, job: pb.Job) -> None:
    """Write the output of each task to the files that the job names."""
    from shoal.model.spec.points import parse_array  # noqa: PLC0415 - Slow.

    indexes = parse_array(batch.indexes) if batch.is_array else [""]
    for place, index in enumerate(indexes):
        _write_task(client, batch, job, place, str(index))


def _write_task(
    client: Client, batch: BatchJob, job: pb.Job, place: int, index: str
) -> None:
    nodes = job.tasks[place].nodes if place < len(job.tasks) else job.nodes
    node = nodes[0].petname if nodes else "none"
    folder = Path(batch.folder)
    out = folder / file_name(batch.output, batch, index, node)
    errors = folder / file_name(batch.error, batch, index, node) if batch.error else out
    with ExitStack() as stack:
        files: dict[Path, BinaryIO] = {}
        for path in (out, errors):
            if path not in files:
                files[path] = stack.enter_context(_opened(path, batch))
        # A gang has one file for all its tasks, as in Slurm.
        task = str(place) if batch.is_array else ""
        for piece in client.logs(pb.LogsRequest(job=job.id, task=task)):
            is_error = piece.stream == pb.STREAM_STDERR
            files[errors if is_error else out].write(piece.data)


def _opened(path: Path, batch: BatchJob) -> BinaryIO:
    if path == Path(os.devnull):
        return path.open("wb")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("ab" if batch.appends else "wb")
