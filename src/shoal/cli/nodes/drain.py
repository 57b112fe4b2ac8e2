"""`shoal drain`: let a node take no new tasks."""

from __future__ import annotations

import click

from shoal.api.client import client as api
from shoal.api.documents import fields_of
from shoal.cli.display.printing import echo_json
from shoal.cli.job_input.completion_types import NODE
from shoal.cli.options import json_option, quiet_option, suggest, talk
from shoal.errors import UsageError


@click.command()
@click.argument("drained", required=False, type=NODE, metavar="[NODE]")
@click.option(
    "--timeout",
    metavar="TIME",
    help="Then stop what still runs, with its own grace, and let it move: 10m.",
)
@click.option("--undo", is_flag=True, help="Take new tasks again.")
@json_option
@quiet_option
def drain(
    drained: str | None, timeout: str | None, undo: bool, as_json: bool, quiet: bool
) -> None:
    """Let NODE, by default this one, take no new tasks until --undo.

    What runs there goes on to its end; with --timeout, what has not ended by then gets
    SIGTERM, saves a checkpoint if it can, and continues elsewhere. A restart changes
    nothing. NODE is one of yours.
    """
    from shoal.model.units import parse_duration  # noqa: PLC0415 - Slow to import.

    if undo and timeout:
        raise UsageError(
            "--undo and --timeout contradict each other",
            because="one lets tasks in, the other makes them go",
            hint="leave one of them out",
        )
    grace_s = None if timeout is None else parse_duration(timeout)
    with api.connect(drained) as client:
        reply = client.drain(grace_s=grace_s, undo=undo)
    if as_json:
        echo_json({**fields_of(reply), "draining": not undo})
        return
    name = reply.node.petname
    if undo:
        talk(f"{name} takes tasks again", quiet=quiet)
        suggest("shoal nodes", quiet=quiet)
        return
    tasks = "1 task runs" if reply.tasks == 1 else f"{reply.tasks} tasks run"
    talk(f"{name} takes no new tasks; {tasks} there", quiet=quiet)
    suggest("shoal nodes", f"shoal drain {name} --undo", quiet=quiet)
