"""`shoal ps`: list the jobs of this node, or of all nodes of its owner."""

from __future__ import annotations

from typing import Final

import click

from shoal.api.client import client as api
from shoal.api.documents import job_fields, state_of
from shoal.cli.display.everywhere import show
from shoal.cli.display.printing import echo_json, echo_table, job_cells
from shoal.cli.options import (
    any_node_option,
    at_node,
    json_option,
    quiet_option,
    suggest,
    talk,
)
from shoal.cli.terminal import echo

LATEST: Final = 20


@click.command()
@click.option(
    "-a", "--all", "all_jobs", is_flag=True, help="List all jobs, not only the latest."
)
@click.option("--active", is_flag=True, help="Leave out jobs that have ended.")
@click.option(
    "-e", "--everywhere", is_flag=True, help="Include all your reachable nodes."
)
@any_node_option
@json_option
@quiet_option
def ps(
    all_jobs: bool,
    active: bool,
    everywhere: bool,
    node: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """List the latest 20 jobs, newest last, and up to 20 older active ones.

    A node knows the jobs submitted to it; with --everywhere it asks your other nodes.
    """
    most = 0 if all_jobs or as_json else LATEST
    with api.connect(node) as client:
        if everywhere:
            found = client.jobs_everywhere(
                active_only=active, jobs_max=most, active_max=most
            )
            show(found, as_json=as_json, quiet=quiet, most=most)
            return
        reply = client.jobs(active_only=active, jobs_max=most, active_max=most)
    if as_json:
        jobs = [job_fields(job) for job in reply.jobs]
        echo_json({"jobs": jobs, "total": reply.total})
        return
    if quiet:
        for job in reply.jobs:
            echo(job.id)
        return
    if not reply.jobs:
        talk("no jobs" if not active else "no jobs are waiting or running")
        suggest("shoal run -- COMMAND")
        return
    echo_table(
        ("#", "JOB", "NAME", "STATE", "TASKS", "NODE", "AGE", "WHY"),
        [job_cells(job) for job in reply.jobs],
    )
    waiting = [job.id for job in reply.jobs if state_of(job.state) == "waiting"]
    if waiting:
        suggest(f"shoal explain {waiting[0]}")
    if reply.total > len(reply.jobs):
        flags = ("--active --all" if active else "--all") + at_node()
        talk(f"and {reply.total - len(reply.jobs)} older ones: shoal ps {flags}")
