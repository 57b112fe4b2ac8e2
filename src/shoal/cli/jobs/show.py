"""`shoal show`: show a job and its tasks."""

from __future__ import annotations

import shlex
import time
from typing import TYPE_CHECKING

import click

from shoal.api.client import client as api
from shoal.api.documents import job_fields, state_of, task_fields
from shoal.cli.display.printing import (
    age,
    echo_json,
    echo_table,
    has_ended,
    places,
    shortened,
    span,
    why,
)
from shoal.cli.job_input.completion_types import JOB
from shoal.cli.job_input.selection import one
from shoal.cli.options import any_node_option, at_node, json_option, suggest
from shoal.cli.terminal import echo

if TYPE_CHECKING:
    from shoal.api.shoal_pb2 import Counts, Job, Task


@click.command()
@click.argument("job", default="last", type=JOB)
@click.option(
    "--tasks",
    "tasks_max",
    type=click.IntRange(min=1),
    default=100,
    help="List at most this many tasks.",
)
@any_node_option
@json_option
def show(job: str, tasks_max: int, node: str | None, as_json: bool) -> None:
    """Show a JOB and its tasks, by default the most recent job.

    Long commands are shortened; --json prints them in full.
    """
    with api.connect(node) as client:
        found = client.get(one(client, job), tasks_max)
    if as_json:
        tasks = [task_fields(task) for task in found.tasks]
        echo_json({"job": job_fields(found), "tasks": tasks})
        return
    rows = {
        "job": f"{found.id}  {found.name}",
        "state": state_of(found.state),
        "why": why(found),
        "tasks": _counted(found.counts),
        "submitted": f"{age(found.submitted_s)} ago",
        "began": _moment(found.began_s),
        "ended": _moment(found.ended_s),
        "took": _took(found),
        "priority": str(found.priority) if found.priority else "",
        "node": places(found.nodes),
        "recipe": found.tasks[0].recipe if found.tasks else "",
        "command": shortened(shlex.join(found.tasks[0].argv)) if found.tasks else "",
        "needs": found.tasks[0].needs if found.tasks else "",
    }
    for name, text in rows.items():
        if text:
            echo(f"{name:<10} {text}")
    if len(found.tasks) > 1 or found.tasks[0].attempts > 1:
        echo()
        echo_table(
            ("TASK", "STATE", "TRIES", "NODE", "TOOK", "WHY"),
            [
                (
                    task.id.partition(".")[2],
                    state_of(task.state),
                    str(task.attempts),
                    places(task.nodes),
                    _took(task),
                    (task.reason or _answered(task))[:72],
                )
                for task in found.tasks
            ],
        )
    total = _total(found.counts)
    if total > len(found.tasks):
        more = f"shoal show {found.id} --tasks {total}{at_node()}"
        echo(f"and {total - len(found.tasks)} more: {more}")
    more = "shoal ps" if has_ended(found) else f"shoal explain {found.id}"
    suggest(f"shoal logs {found.id}", more)


def _answered(task: Task) -> str:
    """List which nodes agreed on a verified result."""
    return ", ".join(f"{one.node.petname} {one.reason}" for one in task.answers)


def _total(counts: Counts) -> int:
    return sum(number for _, number in counts.ListFields())


def _counted(counts: Counts) -> str:
    """Count the tasks by state, if there are several."""
    if _total(counts) == 1:
        return ""
    return ", ".join(f"{number} {field.name}" for field, number in counts.ListFields())


def _moment(wall_s: float) -> str:
    """Format a moment, if it is known."""
    if not wall_s:
        return ""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(wall_s))


def _took(what: Job | Task) -> str:
    """Format how long something ran, from first start to end."""
    if not what.began_s or not what.ended_s:
        return ""
    return span(max(0.0, what.ended_s - what.began_s))
