"""`shoal wait`: wait for jobs to finish, and exit with their code."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, final

import click

from shoal.api.client import client as api
from shoal.api.documents import job_fields
from shoal.cli.display.printing import code_of, echo_json, end_text, has_ended
from shoal.cli.display.progress import ProgressDisplay
from shoal.cli.exit_codes import ExitCode
from shoal.cli.job_input.completion_types import JOBS
from shoal.cli.job_input.selection import expanded
from shoal.cli.options import any_node_option, json_option, quiet_option, talk
from shoal.errors import UnreachableError

if TYPE_CHECKING:
    from shoal.api.shoal_pb2 import Job


@click.command()
@click.argument("jobs", nargs=-1, required=True, type=JOBS, metavar="JOB...")
@click.option("--timeout", help="Give up after this time, with exit code 101: 90s, 2h.")
@any_node_option
@json_option
@quiet_option
def wait(
    jobs: tuple[str, ...],
    timeout: str | None,
    node: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Wait for JOBs to finish; exit with the first code that is not 0."""
    until = None if timeout is None else time.monotonic() + _seconds(timeout)
    is_quiet = quiet or as_json
    with (
        api.connect(node) as client,
        ProgressDisplay("tasks that ended", quiet=is_quiet) as progress,
    ):
        watched = Watched(progress)
        ends = [_end(client, job, until, watched) for job in expanded(client, jobs)]
    for job in ends:
        unfinished = f"job {job.id} has not ended: it is still active"
        talk(end_text(job) if has_ended(job) else unfinished, quiet=quiet or as_json)
    if as_json:
        echo_json({"jobs": [job_fields(job) for job in ends]})
    codes = [code_of(job) for job in ends]
    sys.exit(next((code for code in codes if code), ExitCode.OK))


@final
class Watched:
    """Shows how many tasks of the jobs that were looked at so far have ended."""

    def __init__(self, progress: ProgressDisplay) -> None:
        self._progress = progress
        self._counts: dict[str, tuple[int, int]] = {}

    def see(self, job: Job) -> None:
        """Take in how far a job is."""
        counts = job.counts
        left = counts.blocked + counts.waiting + counts.running
        ended = counts.done + counts.failed + counts.cancelled + counts.unknown
        self._counts[job.id] = ended, ended + left
        done, total = map(sum, zip(*self._counts.values(), strict=True))
        self._progress.told(done, total)


def _end(client: api.Client, job: str, until: float | None, watched: Watched) -> Job:
    """Return a job once it has ended or the time is up."""
    view = client.get(job, tasks_max=1)
    watched.see(view)
    left_s = None if until is None else until - time.monotonic()
    if has_ended(view) or (left_s is not None and left_s <= 0):
        return view
    try:
        for latest in client.watch(view.id, left_s):
            view = latest
            watched.see(view)
    except UnreachableError:
        if until is None or time.monotonic() < until - 0.1:
            raise
    return view


def _seconds(timeout: str) -> float:
    from shoal.model.units import parse_duration  # noqa: PLC0415 - Slow to import.

    return parse_duration(timeout)
