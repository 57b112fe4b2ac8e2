"""The command `shoal`: one verb, one module, imported only when it is called.

Data goes to stdout, everything else to stderr. A command raises a `ShoalError` when
it cannot do its work; `main` turns that into text and an exit code.
"""

import importlib
import sys
from collections.abc import Sequence

import click

from shoal import __version__
from shoal.cli.exit_codes import ExitCode
from shoal.errors import ShoalError, UsageError

COMMANDS = {
    "policy": "shoal.cli.policy:policy",
    "schema": "shoal.cli.schema:schema",
}


class LazyGroup(click.Group):
    """A group that imports the module of a command when the command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, in the order of the alphabet."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the command of this name, if there is one."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command), COMMANDS[cmd_name]
        return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="shoal")
def shoal() -> None:
    """Pool the machines you have and run jobs on them, without a server."""


def explained(error: ShoalError) -> str:
    """Lay out what failed, why, and what to do next, one line each."""
    lines = [f"error: {error.what}"]
    if error.because:
        lines.append(f"why:   {error.because}")
    if error.hint:
        lines.append(f"next:  {error.hint}")
    return "\n".join(lines)


def main(args: Sequence[str] | None = None) -> None:
    """Run one command line, by default that of this process, and exit."""
    try:
        shoal.main(args=args, prog_name="shoal")
    except ShoalError as error:
        click.echo(explained(error), err=True)
        wrong_use = isinstance(error, UsageError)
        sys.exit(ExitCode.USAGE if wrong_use else ExitCode.ERROR)
