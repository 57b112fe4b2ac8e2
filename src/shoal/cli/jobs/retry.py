"""`shoal retry`: run a finished job again."""

from __future__ import annotations

import click

from shoal.api.client import client as api
from shoal.api.documents import job_fields
from shoal.api.job_ids import new_job_id
from shoal.api.shoal_pb2 import RetryRequest
from shoal.cli.display.printing import echo_json
from shoal.cli.job_input.completion_types import JOB
from shoal.cli.job_input.selection import one
from shoal.cli.options import any_node_option, json_option, quiet_option, suggest, talk
from shoal.cli.terminal import echo


@click.command()
@click.argument("job", type=JOB)
@click.option("--failed", is_flag=True, help="Run only the tasks that did not succeed.")
@any_node_option
@json_option
@quiet_option
def retry(job: str, failed: bool, node: str | None, as_json: bool, quiet: bool) -> None:
    """Run a finished JOB again as a new job, and print its id.

    Tasks keep their indices and parameters.
    """
    with api.connect(node) as client:
        request = RetryRequest(
            job=one(client, job), job_id=new_job_id(), failed_only=failed
        )
        reply = client.retry(request)
    new = reply.job
    if as_json:
        echo_json({"job": job_fields(new), "needs": reply.needs})
        return
    echo(new.id)
    talk(f"job {new.id} ({new.name}) submitted · {reply.needs}", quiet=quiet)
    suggest(f"shoal logs -f {new.id}", f"shoal wait {new.id}", quiet=quiet)
