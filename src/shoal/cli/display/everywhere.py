"""`shoal ps --everywhere`: the jobs of all nodes of one owner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shoal.api.documents import job_fields, name_fields
from shoal.cli.display.printing import echo_json, echo_table, job_cells
from shoal.cli.options import at_node, suggest, talk
from shoal.cli.terminal import echo

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shoal.api.shoal_pb2 import Job, ListEverywhereReply, NodeJobs

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
