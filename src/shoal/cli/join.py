"""`shoal join`: become a member of somebody's shoal."""

from __future__ import annotations

import asyncio

import click

from shoal.api import whereabouts
from shoal.api.token_files import STDIN, token_in
from shoal.cli import background
from shoal.cli.options import json_option, quiet_option, suggest, talk
from shoal.cli.printing import echo_json, info_lines
from shoal.cli.settings import default_of
from shoal.errors import ShoalError, UsageError
from shoal.runtime.home import Home


@click.command()
@click.argument("invitation", required=False, default="")
@click.option(
    "--file",
    metavar="FILE",
    help="Take the invitation from a file; - is standard input.",
)
@click.option(
    "--listen",
    default=default_of("listen", "0.0.0.0:0"),
    metavar="HOST:PORT",
    help="Where other members reach this node; port 0 is any that is free.",
)
@click.option(
    "--wait",
    default="10m",
    show_default=True,
    help="How long to wait for the node that gave the invitation out.",
)
@click.option("--no-up", is_flag=True, help="Do not start the node.")
@click.option("--leave", is_flag=True, help="Leave the shoal it joined before.")
@json_option
@quiet_option
def join(
    invitation: str,
    file: str | None,
    listen: str,
    wait: str,
    no_up: bool,
    leave: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Join a shoal by an INVITATION, and start the node in the background.

    Whoever reads an invitation first can use it, and all users of a machine see the
    arguments of commands. `shoal join -` reads it from standard input instead.
    """
    invitation = _invitation(invitation, file)
    from shoal.model.units import parse_duration  # noqa: PLC0415 - Slow to import.
    from shoal.net.petname import petname  # noqa: PLC0415
    from shoal.runtime.joining import join_shoal  # noqa: PLC0415

    home = Home.default()
    _refuse(home, leave=leave)

    def waits(why: str) -> None:
        talk(f"nobody is there who could let this machine in: {why}", quiet=quiet)
        talk(f"waiting for up to {wait}: start that node, or Ctrl-C", quiet=quiet)

    joining = join_shoal(home, invitation, wait_s=parse_duration(wait), waits=waits)
    belongs, inviter = asyncio.run(joining)
    talk(f'joined "{belongs.shoal}", let in by {petname(inviter)}', quiet=quiet)
    started = None if no_up else background.start(home, ["--listen", listen])
    if as_json:
        fields = {"shoal": belongs.shoal, "node": belongs.grant.node}
        echo_json({**fields, "inviter": inviter, "roles": list(belongs.grant.roles)})
        return
    if started is not None:
        taken = started.port_was_taken
        for line in info_lines(started.info, port_was_taken=taken):
            talk(line, quiet=quiet)
    first = "shoal up" if no_up else "shoal nodes"
    may_submit = "scheduler" in belongs.grant.roles
    use = ("shoal run -- COMMAND",) if may_submit else ()
    suggest(first, *use, "shoal down", quiet=quiet)


def _invitation(typed: str, file: str | None) -> str:
    if bool(typed) == bool(file):
        raise UsageError(
            "there is no invitation" if not typed else "there are two invitations",
            because="one is typed, or comes from a file",
            hint="shoal join INVITATION, or `shoal join -` to paste it unseen",
        )
    if file or typed == STDIN:
        return token_in(file or STDIN)
    return typed


def _refuse(home: Home, *, leave: bool) -> None:
    from shoal.runtime import membership  # noqa: PLC0415 - Slow to import.

    if (found := whereabouts.running(home)) is not None:
        raise ShoalError(
            f"the node {found.petname} is running",
            because=f'it belongs to the shoal "{found.shoal}"',
            hint="`shoal down` first; or join from another SHOAL_HOME",
        )
    known = membership.load(home)
    if known is not None and known.gates and not leave:
        raise ShoalError(
            f'this node has joined the shoal "{known.shoal}" before',
            because="a node belongs to one shoal",
            hint="--leave leaves that one; another SHOAL_HOME is another node",
        )
