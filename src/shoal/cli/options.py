"""Options that many commands share, and how commands talk."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from shoal.cli.settings import default_of

F = TypeVar("F", bound=Callable[..., Any])

json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON, in a form that stays."
)
quiet_option = click.option(
    "-q", "--quiet", is_flag=True, help="Print what was asked for and nothing else."
)


def node_option(command: F) -> F:
    """Add `--node`, and the name that it had in the first training scheduler."""
    return click.option(
        "--node",
        "--scheduler",
        "node",
        metavar="HOST:PORT",
        default=default_of("node"),
        help="Ask the node there, not the one that runs here.",
    )(command)


def talk(text: str, *, quiet: bool = False) -> None:
    """Say something to the user that is no data."""
    if not quiet:
        click.echo(text, err=True)


def suggest(*commands: str, quiet: bool = False) -> None:
    """Say which commands one may want to type next."""
    talk("next: " + " · ".join(commands), quiet=quiet)
