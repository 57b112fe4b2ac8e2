"""`shoal pull`: download a job's outputs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import click

from shoal.api.client import client as api
from shoal.api.client.shipping import PulledOutputs, take_outputs
from shoal.api.documents import state_of
from shoal.cli.display.printing import (
    echo_json,
    has_ended,
    size_text,
    taken_fields,
    taken_text,
)
from shoal.cli.display.progress import ProgressDisplay
from shoal.cli.job_input.completion_types import JOB
from shoal.cli.job_input.selection import one_task
from shoal.cli.options import any_node_option, json_option, quiet_option, suggest, talk
from shoal.cli.terminal import echo
from shoal.errors import NotFoundError, ShoalError, UsageError
from shoal.model.text.grammar import is_key
from shoal.model.text.texts import one_line

OUT: Final = "out"


@click.command()
@click.argument("job", default="last", type=JOB, metavar="[JOB[/TASK]]")
@click.option("--to", metavar="DIR", help="Destination folder; out/JOB by default.")
@click.option("--task", default="", help="Only this task, by number, name or label.")
@any_node_option
@json_option
@quiet_option
def pull(
    job: str, to: str | None, task: str, node: str | None, as_json: bool, quiet: bool
) -> None:
    """Download the outputs of a JOB, by default the most recent one, to a folder.

    If the job keeps a single folder, its contents are written. Each of several tasks
    gets a folder of its own, and so does each point of a sweep. For a task without
    outputs, such as one that still runs, the latest checkpoint is written. Existing
    files of the same name are replaced.
    """
    with api.connect(node) as client:
        job, task = one_task(client, job, task)
        found = client.get(job, tasks_max=1)
        taken = take(client, found.id, to, task, quiet=quiet)
        if not taken:
            raise _nothing(found.id, ended=has_ended(found), state=found.state)
    if as_json:
        echo_json({"job": found.id, "outputs": taken_fields(taken)})
        return
    is_seen = sys.stdout.isatty() and not quiet
    for each in taken:
        if not is_seen:  # Programs read the folders; people read what is in them.
            echo(each.folder)
        talk(taken_text(each), quiet=quiet)
    suggest(f"shoal show {found.id}", quiet=quiet)


def take(
    client: api.Client,
    job: str,
    to: str | None = None,
    task: str = "",
    *,
    quiet: bool = False,
) -> list[PulledOutputs]:
    """Write the available outputs of a job; return what was written."""
    reply = client.outputs(job, task)
    if not reply.tasks:
        return []
    folder = Path(to or OUT)
    try:
        where = folder if to else _usual(reply.job_id)
        with ProgressDisplay("downloading", quiet=quiet, unit=size_text) as progress:
            return take_outputs(reply, client, where, progress.told)
    except OSError as error:
        raise UsageError(
            f"cannot write the outputs of job {reply.job_id} to {folder}",
            because=error.strerror or str(error),
            hint=f"choose another folder: shoal pull {reply.job_id} --to DIR",
        ) from None


def _usual(job: str) -> Path:
    """Return a job's output folder, which no later job ships as code."""
    if not is_key(job) or not job:
        raise ShoalError(
            "the node returned an invalid job id",
            because=f"the id is '{one_line(job[:80])}'",
            hint="nothing was written; do not trust this node",
        )
    out = Path(OUT)
    if not out.exists():
        out.mkdir()
        _ignore_all(out)
    elif not (out / ".gitignore").exists() and not (out / job).exists():
        (out / job).mkdir()  # The rest of the folder is the user's own.
        _ignore_all(out / job)
    return out / job


def _ignore_all(folder: Path) -> None:
    (folder / ".gitignore").write_text("*\n", encoding="utf-8")


def _nothing(job: str, *, ended: bool, state: int) -> NotFoundError:
    because = "none of its tasks wrote a path that the job keeps"
    hint = "declare what to keep, such as --output out/, and submit it again"
    if not ended:
        because = (
            f"it is {state_of(state)}, and no task has ended with outputs "
            "or saved a checkpoint"
        )
        hint = f"wait for it: shoal wait {job}"
    return NotFoundError(f"job {job} has no outputs", because=because, hint=hint)
