"""`shoal pull`: take what a job has left."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from shoal.api import client as api
from shoal.api.documents import state_of
from shoal.api.shipping import Taken, take_outputs
from shoal.cli.naming import JOB
from shoal.cli.options import any_node_option, json_option, quiet_option, suggest, talk
from shoal.cli.outputs import taken_fields, taken_text
from shoal.cli.printing import echo_json, has_ended
from shoal.cli.selecting import one
from shoal.cli.terminal import echo
from shoal.errors import NotFoundError, ShoalError, UsageError
from shoal.model.grammar import is_key
from shoal.model.texts import one_line

OUT: Final = "out"


@click.command()
@click.argument("job", default="last", type=JOB)
@click.option("--to", metavar="DIR", help="Where to; out/JOB if it is not said.")
@click.option("--task", default="", help="Only this task, by its id or its place.")
@any_node_option
@json_option
@quiet_option
def pull(
    job: str, to: str | None, task: str, node: str | None, as_json: bool, quiet: bool
) -> None:
    """Write what a JOB left in its outputs to a folder; without one, the last.

    If the job keeps one folder, its contents are written; those of several tasks each
    into a folder of their own. Of a task that has left nothing, as it still runs, the
    latest checkpoint is written. Files of the same name are replaced.
    """
    with api.connect(node) as client:
        found = client.get(one(client, job), tasks_max=1)
        taken = take(client, found.id, to, task)
        if not taken:
            raise _nothing(found.id, ended=has_ended(found), state=found.state)
    if as_json:
        echo_json({"job": found.id, "outputs": taken_fields(taken)})
        return
    for each in taken:
        echo(each.folder)
        talk(taken_text(each), quiet=quiet)
    suggest(f"shoal show {found.id}", quiet=quiet)


def take(
    client: api.Client, job: str, to: str | None = None, task: str = ""
) -> list[Taken]:
    """Write the outputs of a job that are there; return which."""
    reply = client.outputs(job, task)
    if not reply.tasks:
        return []
    folder = Path(to or OUT)
    try:
        return take_outputs(reply, client, folder if to else _usual(reply.job_id))
    except OSError as error:
        raise UsageError(
            f"cannot write the outputs of job {reply.job_id} to {folder}",
            because=error.strerror or str(error),
            hint=f"name a folder that can be: shoal pull {reply.job_id} --to DIR",
        ) from None


def _usual(job: str) -> Path:
    """Return the folder of a job; what is there does not travel with the next one."""
    if not is_key(job) or not job:
        raise ShoalError(
            "the node names a job that there cannot be",
            because=f"it names '{one_line(job[:80])}'",
            hint="nothing was written; do not trust this node",
        )
    out = Path(OUT)
    if not out.exists():
        out.mkdir()
        (out / ".gitignore").write_text("*\n", encoding="utf-8")
    return out / job


def _nothing(job: str, *, ended: bool, state: int) -> NotFoundError:
    because = "none of its tasks has left anything that it asked to be kept"
    hint = "name what is to be kept, like --output out/, and submit it again"
    if not ended:
        because = (
            f"it is {state_of(state)}, and none of its tasks has ended with any, "
            "or saved a checkpoint"
        )
        hint = f"wait for it: shoal wait {job}"
    return NotFoundError(
        f"there are no outputs of job {job}", because=because, hint=hint
    )
