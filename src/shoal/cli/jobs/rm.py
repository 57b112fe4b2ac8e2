"""`shoal rm`: remove ended jobs and what they left."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import click

from shoal.api import shoal_pb2 as pb
from shoal.api.client import client as api
from shoal.api.documents import job_fields, state_of
from shoal.cli.display.printing import echo_json
from shoal.cli.job_input.completion_types import JOBS
from shoal.cli.job_input.job_filters import STATES, read_states
from shoal.cli.job_input.moments import moment_option
from shoal.cli.job_input.selection import expanded
from shoal.cli.options import any_node_option, json_option, quiet_option, suggest, talk
from shoal.cli.terminal import echo
from shoal.errors import UsageError

if TYPE_CHECKING:
    from shoal.api.client.client import Client

ASKED_BEYOND: Final = 5
"""More jobs than this are removed only after a question."""

SHOWN_MAX: Final = 10
ENDED: Final = tuple(
    STATES[name] for name in ("done", "failed", "cancelled", "unknown")
)


@click.command()
@click.argument("jobs", nargs=-1, type=JOBS, metavar="[JOB]...")
@click.option(
    "--older",
    "before_s",
    metavar="TIME",
    callback=moment_option,
    help="All that ended longer ago: 7d.",
)
@click.option(
    "--state",
    "states",
    metavar="STATE,...",
    callback=read_states,
    help="All ended ones in these states: failed,cancelled.",
)
@click.option("--name", default="", help="All ended ones of this name: 'sweep*'.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask before removing many.")
@any_node_option
@json_option
@quiet_option
def rm(
    jobs: tuple[str, ...],
    before_s: float,
    states: list[pb.State],
    name: str,
    yes: bool,
    node: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Remove ended JOBs: their record, output, metrics, results and checkpoints.

    Files that other jobs need stay, and so does what `shoal usage` counts. A JOB that
    has not ended is refused; `all` means all that have. Without JOBs, flags say which:
    all of them must hold.
    """
    if not jobs and not (before_s or states or name):
        raise UsageError(
            "there is nothing to remove",
            because="no job and no flag was given",
            hint="shoal rm JOB; shoal rm --older 7d; shoal rm --state failed",
        )
    with api.connect(node) as client:
        found = [
            job
            for job in _chosen(client, jobs, name)
            if (not states or job.state in states)
            and (not before_s or job.ended_s < before_s)
        ]
        if len(found) > ASKED_BEYOND and not yes:
            _ask(found)
        gone = [client.remove(job.id).job for job in found]
    if as_json:
        echo_json({"removed": [job_fields(job) for job in gone]})
        return
    if quiet:
        for job in gone:
            echo(job.id)
        return
    talk(f"removed {_jobs(len(gone))}" if gone else "no job is like that")
    suggest("shoal ps --all")


def _chosen(client: Client, jobs: tuple[str, ...], name: str) -> list[pb.Job]:
    """Return the named jobs, or all ended jobs."""
    if jobs and jobs != ("all",):
        return [client.get(job, 1) for job in expanded(client, jobs)]
    return list(client.jobs_like(pb.ListRequest(states=ENDED, name=name)).jobs)


def _ask(found: list[pb.Job]) -> None:
    for job in found[:SHOWN_MAX]:
        talk(f"  {job.id}  {job.name}  {state_of(job.state)}")
    if len(found) > SHOWN_MAX:
        talk(f"  and {len(found) - SHOWN_MAX} more")
    if not sys.stdin.isatty():
        raise UsageError(
            f"{_jobs(len(found))} would be removed",
            because="nobody is there to ask",
            hint="add --yes",
        )
    if not click.confirm(f"remove these {_jobs(len(found))}?", err=True):
        raise click.Abort


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count} jobs"
