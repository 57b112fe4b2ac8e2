"""`shoal show`: show a job and its tasks."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

from shoal.api.client import client as api
from shoal.api.documents import job_fields, state_of, steps_fields, task_fields
from shoal.api.results import TASKS_MAX, best_first, order_of, task_key, task_name
from shoal.cli.display.printing import (
    age,
    echo_json,
    echo_table,
    has_ended,
    moment_text,
    places,
    shortened,
    span,
    total,
    why,
)
from shoal.cli.display.results import best_text, has_results, result_table
from shoal.cli.job_input.completion_types import JOB
from shoal.cli.job_input.selection import one
from shoal.cli.options import any_node_option, at_node, json_option, suggest
from shoal.cli.terminal import echo
from shoal.errors import UsageError

if TYPE_CHECKING:
    from shoal.api.results import Order
    from shoal.api.shoal_pb2 import Counts, Job, Schedule, Task


@click.command()
@click.argument("job", default="last", type=JOB)
@click.option(
    "--tasks",
    "tasks_max",
    type=click.IntRange(min=1),
    default=100,
    help="List at most this many tasks.",
)
@click.option(
    "--from",
    "tasks_from",
    type=click.IntRange(min=0),
    default=0,
    help="Leave out so many tasks, the first ones.",
)
@click.option(
    "--sort",
    metavar="NAME",
    help="Sort a sweep by this metric or param; -NAME puts large values first.",
)
@any_node_option
@json_option
def show(
    job: str,
    tasks_max: int,
    tasks_from: int,
    sort: str | None,
    node: str | None,
    as_json: bool,
) -> None:
    """Show a JOB and its tasks, by default the most recent job.

    Tasks of a sweep that report metrics are listed with these, the best first: by the
    objective of the job, else by a loss or an accuracy, or as --sort says. Long
    commands are shortened; --json prints them in full.
    """
    with api.connect(node) as client:
        # All must be here to be sorted, and of a large array they never are.
        found = client.get(one(client, job), TASKS_MAX)
        if (tasks_all := total(found.counts)) > TASKS_MAX:
            found = client.get(found.id, min(tasks_max, TASKS_MAX), tasks_from)
    order = order_of(sort) if sort else None
    _refuse_unknown(found, order)
    compares = has_results(found) or order is not None
    if compares:
        _sort_tasks(found, order)
    best = best_text(found, order) if compares else ""
    if tasks_all <= TASKS_MAX:
        del found.tasks[:tasks_from]
    del found.tasks[tasks_max:]
    if as_json:
        tasks = [task_fields(task) for task in found.tasks]
        steps = steps_fields(found)
        echo_json({"job": job_fields(found), "tasks": tasks, "steps": steps})
        return
    _describe(found, best)
    if compares:
        echo()
        echo_table(*result_table(found, order))
    elif len(found.tasks) > 1 or found.tasks[0].attempts > 1:
        echo()
        echo_table(
            ("TASK", "STATE", "TRIES", "NODE", "TOOK", "WHY"), map(_row, found.tasks)
        )
    if left := _more_text(tasks_all, tasks_from, len(found.tasks)):
        echo(left.format(show=f"shoal show {found.id}", at=at_node()))
    if found.HasField("schedule"):
        suggest(f"shoal retry {found.id} runs it now", f"shoal cancel {found.id}")
        return
    more = "shoal ps" if has_ended(found) else f"shoal explain {found.id}"
    suggest(f"shoal logs {found.id}", more)


def _describe(found: Job, best: str) -> None:
    """Print what a job is, a line for each fact that is known."""
    rows = {
        "job": f"{found.id}  {found.name}",
        "state": state_of(found.state),
        "why": why(found),
        "schedule": _schedule_text(found.schedule),
        "runs": _runs_text(found.schedule),
        "of": found.scheduled_by,
        "parent": f"{found.parent}{' (detached)' if found.detached else ''}",
        "tasks": _counted(found.counts),
        "best": best,
        "submitted": f"{age(found.submitted_s)} ago",
        "began": moment_text(found.began_s),
        "ended": moment_text(found.ended_s),
        "took": _took(found),
        "priority": str(found.priority) if found.priority else "",
        "node": places(found.nodes),
        "kept by": _keepers_text(found),
        "recipe": found.tasks[0].recipe if found.tasks else "",
        "made": next((task.made for task in found.tasks if task.made), ""),
        "command": _command_text(found),
        "needs": found.tasks[0].needs if found.tasks else "",
    }
    for name, text in rows.items():
        if text:
            echo(f"{name:<10} {text}")


def _command_text(found: Job) -> str:
    """Return what a job runs, and which of its tasks does if they differ."""
    if not found.tasks:
        return ""
    first = found.tasks[0]
    differ = any(task.argv != first.argv for task in found.tasks)
    of_one = f"  ({task_name(first)})" if differ else ""
    return shortened(shlex.join(first.argv)) + of_one


def _keepers_text(found: Job) -> str:
    """Say who keeps a job, and who of them lacks some of it."""
    return ", ".join(
        f"{keeper.node.petname}"
        + (" (away)" if keeper.away else "" if keeper.whole else " (not all yet)")
        for keeper in found.keepers
    )


def _schedule_text(schedule: Schedule) -> str:
    return f"{schedule.cron} ({schedule.timezone})" if schedule.cron else ""


def _runs_text(schedule: Schedule) -> str:
    last = f", the last is {schedule.last}" if schedule.last else ""
    return f"{schedule.runs}{last}" if schedule.cron else ""


def _sort_tasks(job: Job, order: Order | None) -> None:
    """Put the best tasks first, so that they are shown if not all are."""
    order = order or best_first(job)
    if order is not None:
        places = {task.id: place for place, task in enumerate(job.tasks)}
        job.tasks.sort(key=lambda task: (task_key(task, order), places[task.id]))


def _refuse_unknown(job: Job, order: Order | None) -> None:
    if order is None:
        return
    known = {name for task in job.tasks for name in (*task.metrics, *task.params)}
    if order.name not in known:
        raise UsageError(
            f"no task of job {job.id} has a metric or param '{order.name}'",
            because=f"there are {', '.join(sorted(known)[:20])}"
            if known
            else "it reported no metrics and has no params",
            hint=f"`shoal show {job.id} --json` has all of them",
        )


def _answered(task: Task) -> str:
    """List which nodes agreed on a verified result."""
    return ", ".join(f"{one.node.petname} {one.reason}" for one in task.answers)


def _row(task: Task) -> tuple[str, ...]:
    return (
        task_name(task),
        state_of(task.state),
        str(task.attempts),
        places(task.nodes),
        _took(task),
        (task.reason or _answered(task))[:72],
    )


def _more_text(tasks_all: int, first: int, shown: int) -> str:
    """Say how to see the tasks that are not shown, if there are any."""
    left = tasks_all - first - shown
    if left <= 0:
        return ""
    more = f"--tasks {tasks_all}"
    if tasks_all > TASKS_MAX:
        more = f"--from {first + shown} --tasks {min(left, TASKS_MAX)}"
    return f"and {left:,} more: {{show}} {more}{{at}}"


def _counted(counts: Counts) -> str:
    """Count the tasks by state, if there are several."""
    if total(counts) == 1:
        return ""
    return ", ".join(f"{number} {field.name}" for field, number in counts.ListFields())


def _took(what: Job | Task) -> str:
    """Format how long something ran, from first start to end."""
    if not what.began_s or not what.ended_s:
        return ""
    return span(max(0.0, what.ended_s - what.began_s))
