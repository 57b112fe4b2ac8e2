"""`shoal logs`: what the tasks of a job wrote."""

from __future__ import annotations

import click

from shoal.api import client as api
from shoal.api import shoal_pb2 as pb
from shoal.api.documents import piece_fields
from shoal.cli.following import follow
from shoal.cli.naming import JOB
from shoal.cli.options import any_node_option, json_option, raw_option
from shoal.cli.printing import echo_json
from shoal.cli.selecting import one

_STREAMS = {
    "both": pb.STREAM_UNSPECIFIED,
    "stdout": pb.STREAM_STDOUT,
    "stderr": pb.STREAM_STDERR,
}


@click.command()
@click.argument("job", default="last", type=JOB)
@click.option("-f", "--follow", "following", is_flag=True, help="Go on until the end.")
@click.option("--task", default="", help="Only this task: its number or its name.")
@click.option(
    "--stream", type=click.Choice(list(_STREAMS)), default="both", help="Only one."
)
@click.option("--all-attempts", is_flag=True, help="Also what earlier tries wrote.")
@raw_option
@any_node_option
@json_option
def logs(
    job: str,
    following: bool,
    task: str,
    stream: str,
    all_attempts: bool,
    raw: bool,
    node: str | None,
    as_json: bool,
) -> None:
    """Print what a JOB wrote; without one, the last.

    What went to stderr goes to stderr. With several tasks, each line names its own.
    A terminal gets text and colours only; files and pipes get every byte.
    """
    with api.connect(node) as client:
        found = client.get(one(client, job), tasks_max=2)
        request = pb.LogsRequest(
            job=found.id,
            task=task,
            follow=following,
            stream=_STREAMS[stream],
            all_attempts=all_attempts,
        )
        pieces = client.logs(request)
        if not as_json:
            prefixed = len(found.tasks) > 1 and not task
            follow(pieces, prefixed=prefixed, raw=raw)
            return
        for piece in pieces:
            echo_json(piece_fields(piece))
