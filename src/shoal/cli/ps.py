"""`shoal ps`: the jobs of this node, or of all nodes of its owner."""

from __future__ import annotations

from typing import Final

import click

from shoal.api import client as api
from shoal.api.documents import job_fields, state_of
from shoal.cli.everywhere import show
from shoal.cli.options import (
    any_node_option,
    at_node,
    json_option,
    quiet_option,
    suggest,
    talk,
)
from shoal.cli.printing import echo_json, echo_table, job_cells
from shoal.cli.terminal import echo

LATEST: Final = 20


@click.command()
@click.option("-a", "--all", "all_jobs", is_flag=True, help="List all, not the last.")
@click.option("--active", is_flag=True, help="Leave out those that have ended.")
@click.option(
    "-e", "--everywhere", is_flag=True, help="Of all your nodes that can be reached."
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
    """List the last 20 jobs, the latest last, and up to 20 older ones that go on.

    A node knows the jobs that were submitted to it, and asks others of the same owner.
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
        talk("no jobs" if not active else "no jobs wait or run")
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
