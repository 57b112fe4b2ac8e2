"""`shoal ps`: list the jobs of this node, or of all nodes of its owner."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Any, Final

import click

from shoal.api import shoal_pb2 as pb
from shoal.api.client import client as api
from shoal.api.documents import job_fields, name_fields, state_of
from shoal.cli.display.printing import echo_json, echo_table, job_cells
from shoal.cli.job_input.job_filters import read_states
from shoal.cli.job_input.moments import moment_option
from shoal.cli.options import (
    any_node_option,
    at_node,
    json_option,
    quiet_option,
    suggest,
    talk,
)
from shoal.cli.terminal import echo

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shoal.api.shoal_pb2 import Job, ListEverywhereReply, NodeJobs

LATEST: Final = 20


def _typed() -> str:
    """Return the filters as they were typed, for a suggested command."""
    typed = sys.argv[1:]
    flags = ("--state", "--name", "--owner", "--since")
    kept = [
        word
        for place, word in enumerate(typed)
        if word.partition("=")[0] in flags or (place and typed[place - 1] in flags)
    ]
    return "".join(shlex.quote(word) + " " for word in kept)


@click.command()
@click.option(
    "-a",
    "--all",
    "all_jobs",
    is_flag=True,
    help="List all jobs, not only the latest, and interpreters of function calls.",
)
@click.option(
    "--active", "active_only", is_flag=True, help="Leave out jobs that have ended."
)
@click.option(
    "-e", "--everywhere", is_flag=True, help="Include all your reachable nodes."
)
@click.option(
    "--state",
    "states",
    metavar="STATE,...",
    callback=read_states,
    help="Only jobs in these states: failed,running.",
)
@click.option("--name", default="", help="Only jobs of this name: 'sweep*'.")
@click.option("--owner", default="", help="Only jobs of this owner.")
@click.option(
    "--since",
    "since_s",
    metavar="WHEN",
    callback=moment_option,
    help="Only jobs submitted since: 2h, 7d, 2026-11-17.",
)
@any_node_option
@json_option
@quiet_option
def ps(
    all_jobs: bool,
    everywhere: bool,
    node: str | None,
    as_json: bool,
    quiet: bool,
    **filters: Any,  # noqa: ANN401 - As the fields of the request.
) -> None:
    """List the latest 20 jobs, newest last, and up to 20 older active ones.

    A node knows the jobs submitted to it; with --everywhere it asks your other nodes.
    """
    most = 0 if all_jobs or as_json else LATEST
    request = pb.ListRequest(
        jobs_max=most, active_max=most, interpreters=all_jobs, **filters
    )
    active = request.active_only
    with api.connect(node) as client:
        if everywhere:
            found = client.jobs_everywhere(request)
            show(found, as_json=as_json, quiet=quiet, most=most)
            return
        reply = client.jobs_like(request)
    if as_json:
        jobs = [job_fields(job) for job in reply.jobs]
        echo_json({"jobs": jobs, "total": reply.total})
        return
    if quiet:
        for job in reply.jobs:
            echo(job.id)
        return
    if not reply.jobs and _typed():
        talk("no job is like that")
        suggest("shoal ps --all")
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
        flags = f"{'--active ' if active else ''}{_typed()}--all{at_node()}"
        talk(f"and {reply.total - len(reply.jobs)} older ones: shoal ps {flags}")


HEADINGS = ("NODE", "#", "JOB", "NAME", "STATE", "TASKS", "RUNS ON", "AGE", "WHY")


def show(found: ListEverywhereReply, *, as_json: bool, quiet: bool, most: int) -> None:
    """Print up to `most` jobs per node, newest last, and nodes without an answer."""
    rows = _in_order(found.nodes)
    if as_json:
        echo_json(fields(found))
        return
    if quiet:
        for _, job in rows:
            echo(job.id)
    elif rows:
        lines = [(node.node.petname, *job_cells(job)) for node, job in rows]
        echo_table(HEADINGS, lines)
    else:
        talk("no jobs")
    _say_what_is_missing(found, quiet=quiet, is_cut=bool(most))
    if not rows:
        suggest("shoal run -- COMMAND", quiet=quiet)
    elif not at_node():
        node, job = rows[-1]
        suggest(f"shoal show {job.id} --node {node.node.petname}", quiet=quiet)


def fields(found: ListEverywhereReply) -> dict[str, Any]:
    """Return the fields for JSON."""
    return {
        "jobs": [
            {**job_fields(job), "at": name_fields(node.node)}
            for node, job in _in_order(found.nodes)
        ],
        "total": sum(node.total for node in found.nodes),
        "silent": [
            {**name_fields(node.node), "reason": _trouble(node)}
            for node in found.nodes
            if node.HasField("trouble")
        ],
        "unreached": found.unreached,
    }


def _in_order(nodes: Iterable[NodeJobs]) -> list[tuple[NodeJobs, Job]]:
    rows = [(node, job) for node in nodes for job in node.jobs]
    return sorted(rows, key=lambda row: row[1].submitted_s)


def _say_what_is_missing(
    found: ListEverywhereReply, *, quiet: bool, is_cut: bool
) -> None:
    for node in found.nodes:
        if node.HasField("trouble"):
            talk(f"{node.node.petname} did not list its jobs: {_trouble(node)}")
        elif is_cut and node.total > len(node.jobs):
            older = node.total - len(node.jobs)
            talk(f"and {older} older ones of {node.node.petname}: --all", quiet=quiet)
    if found.unreached:
        nodes = "a node" if found.unreached == 1 else f"{found.unreached} nodes"
        talk(
            f"{nodes} of the shoal cannot be reached now; "
            "any jobs you have there are missing",
            quiet=quiet,
        )


def _trouble(node: NodeJobs) -> str:
    return node.trouble.because or node.trouble.what
