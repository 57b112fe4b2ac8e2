"""Options that many commands share, and how commands talk."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource

from shoal.cli import write_nowhere
from shoal.cli.naming import NODE
from shoal.cli.settings import default_of
from shoal.cli.terminal import echo
from shoal.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])

PORT_MAX: Final = 65_535
ABOUT_JOBS: Final = frozenset(
    {"cancel", "events", "explain", "logs", "ps", "pull", "retry", "show", "wait"}
)
"""Commands that a node does for the user of another one of the same owner."""

json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON, in a form that stays."
)
quiet_option = click.option(
    "-q", "--quiet", is_flag=True, help="Print what was asked for and nothing else."
)

raw_option = click.option(
    "--raw",
    is_flag=True,
    help="Let what tasks write steer the terminal: titles, cursor, all of it.",
)


def checked_address(
    ctx: click.Context, _param: click.Parameter, text: str | None
) -> str | None:
    """Refuse what is no address before somebody tries to call it."""
    host, _, port = (text or "").rpartition(":")
    is_one = bool(host) and port.isdecimal() and int(port) <= PORT_MAX
    if not text or is_one or ctx.resilient_parsing:
        return text
    because = f"a port is a number up to {PORT_MAX}, after a colon"
    hint = "write it like localhost:50051"
    if ":" not in text:
        because = "by name, another node is asked about the jobs that it has, no more"
        hint = f"type the command on that node itself; or {hint}"
    raise UsageError(f"'{text}' is not a host and a port", because=because, hint=hint)


def checked_node(
    ctx: click.Context, param: click.Parameter, text: str | None
) -> str | None:
    """Refuse what is neither an address nor can be the name of a node."""
    return checked_address(ctx, param, text) if text and ":" in text else text


def node_option(command: F) -> F:
    """Add `--node`, and the name that it had in the first training scheduler.

    The command gets an address, or None for the node that runs here.
    """
    return click.option(
        "--node",
        "--scheduler",
        "node",
        metavar="HOST:PORT",
        default=default_of("node"),
        callback=checked_address,
        help="Ask the node there, not the one that runs here.",
    )(command)


def any_node_option(command: F) -> F:
    """Add the same `--node`, which may also name another node of the same owner."""
    return click.option(
        "--node",
        "--scheduler",
        "node",
        metavar="NODE",
        type=NODE,
        default=default_of("node"),
        callback=checked_node,
        help="Ask another node of yours, by name; or any, by HOST:PORT.",
    )(command)


def at_node() -> str:
    """Return what has the next command ask the node that this one was told to ask."""
    context = click.get_current_context(silent=True)
    node = context.params.get("node") if context is not None else None
    if context is None or not node:
        return ""
    is_typed = context.get_parameter_source("node") is ParameterSource.COMMANDLINE
    return f" --node {node}" if is_typed else ""


def talk(text: str, *, quiet: bool = False) -> None:
    """Say one line to the user that is no data; if nobody is there, to nobody."""
    if quiet:
        return
    try:
        echo(text, err=True)
    except OSError:  # As when the terminal was closed.
        write_nowhere(err=True)


def suggest(*commands: str, quiet: bool = False) -> None:
    """Say which commands one may want to type next, in the same net, of that node."""
    commands = tuple(
        each + at_node() if each.split()[1] in ABOUT_JOBS else each for each in commands
    )
    context = click.get_current_context(silent=True)
    net = context.find_root().params.get("net") if context is not None else None
    if net:
        of_net = f"shoal --net {net} "
        commands = tuple(each.replace("shoal ", of_net, 1) for each in commands)
    talk("next: " + " · ".join(commands), quiet=quiet)
