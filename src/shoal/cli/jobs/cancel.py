"""`shoal cancel`: cancel jobs."""

from __future__ import annotations

import click

from shoal.api.client import client as api
from shoal.api.documents import job_fields, state_of
from shoal.cli.display.printing import echo_json
from shoal.cli.job_input.completion_types import JOBS
from shoal.cli.job_input.selection import expanded
from shoal.cli.options import any_node_option, json_option, quiet_option, suggest, talk


@click.command()
@click.argument("jobs", nargs=-1, required=True, type=JOBS, metavar="JOB...")
@click.option("--task", default="", help="Only this task, by number, name or label.")
@click.option("--reason", default="", help="Reason to record with the job.")
@any_node_option
@json_option
@quiet_option
def cancel(
    jobs: tuple[str, ...],
    task: str,
    reason: str,
    node: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Cancel jobs: by id, the last one, or every job that has not ended."""
    with api.connect(node) as client:
        replies = [client.cancel(job, reason, task) for job in expanded(client, jobs)]
    if as_json:
        echo_json({"jobs": [job_fields(reply.job) for reply in replies]})
        return
    for reply in replies:
        job = reply.job
        if reply.had_ended and task:
            talk(f"task {task} of job {job.id} had already ended", quiet=quiet)
        elif reply.had_ended:
            talk(f"job {job.id} had already ended: {state_of(job.state)}", quiet=quiet)
        else:
            what = f"task {task} of job {job.id}" if task else f"job {job.id}"
            talk(f"{what} is cancelled", quiet=quiet)
    if not replies:
        talk("no jobs are waiting or running", quiet=quiet)
    suggest("shoal ps", quiet=quiet)
