"""`shoal explain`: why a job waits, or runs where it does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from shoal.api.client import client as api
from shoal.api.documents import explanation_fields, state_of
from shoal.cli.display.printing import echo_json, places, total
from shoal.cli.job_input.completion_types import JOB
from shoal.cli.options import any_node_option, json_option, suggest
from shoal.cli.terminal import echo

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shoal.api.shoal_pb2 import TaskExplanation
from shoal.cli.job_input.selection import one_task

REJECTIONS_SHOWN_MAX = 20
ENDED = {"failed": "failed", "cancelled": "was cancelled"}


@click.command()
@click.argument("job", default="last", type=JOB, metavar="[JOB[/TASK]]")
@click.option("--task", default="", help="Only this task, by number, name or label.")
@any_node_option
@json_option
def explain(job: str, task: str, node: str | None, as_json: bool) -> None:
    """Explain why a JOB waits, or runs where it does."""
    with api.connect(node) as client:
        job, task = one_task(client, job, task)
        reply = client.explain(job, task)
        counts = client.get(reply.job_id, tasks_max=1).counts
    others = 0 if task else total(counts) - len(reply.tasks)
    if as_json:
        tasks = [explanation_fields(each) for each in reply.tasks]
        echo_json({"job": reply.job_id, "tasks": tasks, "more": reply.more})
        return
    for each in reply.tasks:
        for line in lines_of(each):
            echo(line)
    if others > 0:
        some = "1 other task" if others == 1 else f"{others} other tasks"
        echo(f"and {some}: --task NAME explains one")
    suggest(f"shoal show {reply.job_id}", "shoal nodes")


def lines_of(task: TaskExplanation) -> Iterator[str]:
    """Print why a task waits, or runs where it does."""
    state = state_of(task.state)
    where = f" on {places(task.nodes)}" if task.nodes else ""
    named = f" ({task.label})" if task.label and not task.label.isdigit() else ""
    yield f"{task.task}{named} {ENDED.get(state, f'is {state}')}{where}"
    yield f"  asks   {task.needs}"
    for why in task.why:
        yield f"  why    {why}"
    for answer in task.answers:
        yield f"  result {answer.node.petname}: {answer.reason}"
    if state != "waiting":
        return
    for verdict in task.refused:
        yield f"  said   {verdict.node.petname}: {verdict.reason}"
    for verdict in task.rejected[:REJECTIONS_SHOWN_MAX]:
        yield f"  short  {verdict.node.petname}: {verdict.reason}"
    more = len(task.rejected) - REJECTIONS_SHOWN_MAX
    if more > 0:
        yield f"         and {more} other nodes"
    total = task.fitting + len(task.rejected)
    if total:
        yield f"  nodes  {task.fitting} of {total} could run it now"
    for cached in task.cached:
        yield f"  warm   {cached}"
    if task.helps:
        yield "  helps  " + "   |   ".join(task.helps)
