"""`shoal exec`: run a command inside a running task."""

from __future__ import annotations

import sys

import click

from shoal.api.client import client as api
from shoal.cli.job_input.completion_types import JOB
from shoal.cli.options import any_node_option, raw_option
from shoal.cli.tasks import carrying


@click.command("exec")
@click.argument("job", type=JOB, metavar="JOB[/TASK]")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("-i", "--interactive", is_flag=True, help="Send standard input.")
@click.option("-t", "--tty", "terminal", is_flag=True, help="Give it a terminal.")
@raw_option
@any_node_option
def exec_(
    job: str,
    command: tuple[str, ...],
    interactive: bool,
    terminal: bool,
    raw: bool,
    node: str | None,
) -> None:
    """Run COMMAND inside a running task, and exit with its code.

    It runs wherever the task does, in the same sandbox: same files, devices, limits
    and variables. It ends when the task ends, or when this command does. Standard
    input is sent if it is a pipe or a file, or with -i. With -t, the command has this
    terminal: shoal exec -it JOB -- bash
    """
    target = carrying.target_of(job)
    target.program.argv.extend(command)
    if terminal:
        target.program.terminal.CopyFrom(carrying.terminal_here())
    with api.connect(node) as client:
        channel = client.channel(target)
        try:
            if terminal:
                code = carrying.on_terminal(channel)
            else:
                with_input = interactive or carrying.has_input()
                code = carrying.on_pipes(channel, with_input=with_input, raw=raw)
        finally:
            channel.close()
    if code is None:
        raise carrying.broken_off(target.job)
    sys.exit(code)
