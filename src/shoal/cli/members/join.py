"""`shoal join`: join a shoal by invitation."""

from __future__ import annotations

import asyncio

import click

from shoal.api import node_file
from shoal.api.client.token_files import STDIN, token_in
from shoal.cli.config.settings import default_of
from shoal.cli.display.printing import echo_json, info_lines, span
from shoal.cli.display.progress import ProgressDisplay
from shoal.cli.nodes import background
from shoal.cli.options import json_option, quiet_option, suggest, talk
from shoal.errors import ShoalError, UsageError
from shoal.runtime.home import Home


@click.command()
@click.argument("invitation", required=False, default="")
@click.option(
    "--file",
    metavar="FILE",
    help="Read the invitation from a file; - is standard input.",
)
@click.option(
    "--listen",
    default=default_of("listen", "0.0.0.0:0"),
    metavar="HOST:PORT",
    help="Address for other members; port 0 picks a free one.",
)
@click.option(
    "--wait",
    default="10m",
    show_default=True,
    help="How long to wait for the inviting node.",
)
@click.option("--no-up", is_flag=True, help="Do not start the node.")
@click.option("--leave", is_flag=True, help="Leave the current shoal first.")
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
    """Join a shoal with an INVITATION, and start the node in the background.

    Anyone who sees an unused invitation can use it, and all users of a machine can see
    command-line arguments. `shoal join -` reads it from standard input instead.
    """
    invitation = _invitation(invitation, file)
    from shoal.model.units import parse_duration  # noqa: PLC0415 - Slow to import.
    from shoal.net.identity.petname import petname  # noqa: PLC0415
    from shoal.runtime.admission.join_by_invitation import join_shoal  # noqa: PLC0415

    home = Home.default()
    _refuse(home, leave=leave)

    wait_s = parse_duration(wait)
    with ProgressDisplay("waiting", quiet=quiet, unit=span) as progress:
        told = ""

        def waits(why: str, waited_s: float) -> None:
            nonlocal told
            if why != told:
                told = why
                there = "no node that can admit this machine is reachable"
                progress.say(f"{there}: {why}")
                progress.say(f"waiting up to {wait}: start that node, or press Ctrl-C")
            progress.told(int(waited_s), int(wait_s))

        joining = join_shoal(home, invitation, wait_s=wait_s, waits=waits)
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
            because="it is either an argument or read from a file",
            hint="shoal join INVITATION, or `shoal join -` to paste it unseen",
        )
    if file or typed == STDIN:
        return token_in(file or STDIN)
    return typed


def _refuse(home: Home, *, leave: bool) -> None:
    from shoal.runtime.membership import shoal_membership  # noqa: PLC0415 - Slow to import.

    if (found := node_file.running(home)) is not None:
        raise ShoalError(
            f"the node {found.petname} is running",
            because=f'it belongs to the shoal "{found.shoal}"',
            hint="`shoal down` first; or join from another SHOAL_HOME",
        )
    known = shoal_membership.load(home)
    if known is not None and known.gates and not leave:
        raise ShoalError(
            f'this node is already a member of the shoal "{known.shoal}"',
            because="a node belongs to one shoal",
            hint="use --leave to leave it, or another SHOAL_HOME for another node",
        )
