"""`shoal logs`: print the output of a job's tasks."""

from __future__ import annotations

from typing import Any

import click

from shoal.api import shoal_pb2 as pb
from shoal.api.client import client as api
from shoal.api.documents import piece_fields
from shoal.cli.display.printing import echo_json
from shoal.cli.display.task_output import follow, names_of
from shoal.cli.job_input.completion_types import JOB
from shoal.cli.job_input.moments import moment_option
from shoal.cli.job_input.selection import one_task
from shoal.cli.options import any_node_option, json_option, raw_option

_STREAMS = {
    "both": pb.STREAM_UNSPECIFIED,
    "stdout": pb.STREAM_STDOUT,
    "stderr": pb.STREAM_STDERR,
}


def _stream(_ctx: click.Context, _param: click.Parameter, name: str) -> pb.Stream:
    return _STREAMS[name]


@click.command()
@click.argument("job", default="last", type=JOB, metavar="[JOB[/TASK]]")
@click.option("-f", "--follow", is_flag=True, help="Follow until the job ends.")
@click.option("--task", default="", help="Only this task, by number, name or label.")
@click.option(
    "--stream",
    type=click.Choice(list(_STREAMS)),
    default="both",
    callback=_stream,
    help="Only one.",
)
@click.option(
    "-n",
    "--tail",
    "last_lines",
    type=click.IntRange(min=1),
    metavar="N",
    help="Only the last N lines of each task and stream.",
)
@click.option(
    "--since",
    "since_s",
    metavar="WHEN",
    callback=moment_option,
    help="Only what came since: 10m, 2026-11-17T08:30.",
)
@click.option(
    "-t", "--timestamps", "times", is_flag=True, help="Say when each line came."
)
@click.option("--all-attempts", is_flag=True, help="Include earlier attempts.")
@raw_option
@any_node_option
@json_option
def logs(
    job: str,
    times: bool,
    raw: bool,
    node: str | None,
    as_json: bool,
    **asked: Any,  # noqa: ANN401 - As the fields of the request.
) -> None:
    """Print the output of a JOB, by default the most recent one.

    Its stderr goes to stderr. Times are UTC, by the clock of the node that keeps the
    output. With several tasks, each line names its task. A terminal gets only text
    and colours; files and pipes get every byte.
    """
    with api.connect(node) as client:
        job, task = one_task(client, job, asked.pop("task"))
        found = client.get(job)
        request = pb.LogsRequest(job=found.id, task=task, times=times, **asked)
        pieces = client.logs(request)
        if not as_json:
            many = len(found.tasks) > 1 and not request.task
            names = names_of(found) if many else None
            follow(pieces, names=names, times=times, raw=raw)
            return
        for piece in pieces:
            echo_json(piece_fields(piece))
