"""Options that many commands share, and messages to the user."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource

from shoal.cli import write_nowhere
from shoal.cli.config.settings import default_of
from shoal.cli.job_input.completion_types import NODE
from shoal.cli.terminal import echo
from shoal.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])

PORT_MAX: Final = 65_535
ABOUT_JOBS: Final = frozenset(
    {
        *("cancel", "events", "exec", "explain", "forward", "logs", "metrics"),
        *("ps", "pull", "retry", "rm", "show", "usage", "wait"),
    }
)
"""Commands that a node also forwards to other nodes of the same owner."""

json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON with a stable schema."
)
quiet_option = click.option(
    "-q", "--quiet", is_flag=True, help="Print only the result."
)

raw_option = click.option(
    "--raw",
    is_flag=True,
    help="Do not filter escape sequences in task output.",
)


OptionTable = tuple[tuple[tuple[str, ...], dict[str, Any]], ...]
"""Options of a command as a table: their names, and arguments of `click.option`."""


def options_of(flags: OptionTable) -> Callable[[F], F]:
    """Return a decorator that adds these options to a command, in this order."""

    def add(command: F) -> F:
        for names, settings in reversed(flags):
            command = click.option(*names, **settings)(command)
        return command

    return add


def text_in(file: str) -> str:
    """Return the text in a file that the user named, without the end of its line."""
    try:
        return Path(file).read_text(encoding="utf-8").rstrip("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"cannot read {file}",
            because=getattr(error, "strerror", "") or str(error),
            hint="choose a text file that you can read",
        ) from None


def check_labels(labels: Iterable[str], hint: str) -> None:
    """Raise unless all labels are pairs; `hint` shows how to write them."""
    for text in labels:
        if not all(text.partition("=")):
            raise UsageError(
                f"'{text}' is not a label",
                because="a label is a name, an equals sign and a value",
                hint=hint,
            )


def checked_address(
    ctx: click.Context, _param: click.Parameter, text: str | None
) -> str | None:
    """Reject an invalid address before anything connects to it."""
    host, _, port = (text or "").rpartition(":")
    is_one = bool(host) and port.isdecimal() and int(port) <= PORT_MAX
    if not text or is_one or ctx.resilient_parsing:
        return text
    because = f"a port is a number up to {PORT_MAX}, after a colon"
    hint = "write it like localhost:50051"
    if ":" not in text:
        because = "node names work only in commands about jobs"
        hint = f"run the command on that node; or {hint}"
    raise UsageError(f"'{text}' is not a host and a port", because=because, hint=hint)


def checked_node(
    ctx: click.Context, param: click.Parameter, text: str | None
) -> str | None:
    """Reject text that is neither an address nor a possible node name."""
    return checked_address(ctx, param, text) if text and ":" in text else text


def node_option(command: F) -> F:
    """Add `--node`, and its name in the original training scheduler.

    The command gets an address, or None for the node that runs here.
    """
    return click.option(
        "--node",
        "--scheduler",
        "node",
        metavar="HOST:PORT",
        default=default_of("node"),
        callback=checked_address,
        help="Use the node at this address, not the local one.",
    )(command)


def any_node_option(command: F) -> F:
    """Add a `--node` that also accepts the name of another node of the owner."""
    return click.option(
        "--node",
        "--scheduler",
        "node",
        metavar="NODE",
        type=NODE,
        default=default_of("node"),
        callback=checked_node,
        help="Use another node: one of yours by name, or any by HOST:PORT.",
    )(command)


def at_node() -> str:
    """Return the `--node` flag for suggested commands, if one was typed."""
    context = click.get_current_context(silent=True)
    node = context.params.get("node") if context is not None else None
    if context is None or not node:
        return ""
    is_typed = context.get_parameter_source("node") is ParameterSource.COMMANDLINE
    return f" --node {node}" if is_typed else ""


def talk(text: str, *, quiet: bool = False) -> None:
    """Print a line for the user to stderr; ignore a closed terminal."""
    if quiet:
        return
    try:
        echo(text, err=True)
    except OSError:  # As when the terminal was closed.
        write_nowhere(err=True)


def suggest(*commands: str, quiet: bool = False) -> None:
    """Suggest next commands, with the same `--net` and `--node`."""
    commands = tuple(
        each + at_node() if each.split()[1] in ABOUT_JOBS else each for each in commands
    )
    context = click.get_current_context(silent=True)
    net = context.find_root().params.get("net") if context is not None else None
    if net:
        of_net = f"shoal --net {net} "
        commands = tuple(each.replace("shoal ", of_net, 1) for each in commands)
    talk("next: " + " · ".join(commands), quiet=quiet)
