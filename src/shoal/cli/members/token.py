"""`shoal token`: show or replace this node's access token."""

from __future__ import annotations

import click

from shoal.api import node_file
from shoal.api.client import client as api
from shoal.cli.display.printing import echo_json
from shoal.cli.options import json_option, quiet_option, suggest, talk
from shoal.cli.terminal import echo
from shoal.errors import UsageError
from shoal.runtime.home import Home


@click.group()
def token() -> None:
    """Show or replace this node's access token.

    Anyone with the token can do what you can. Pass it to programs in a file
    (SHOAL_TOKEN_FILE, --token-file), not in their arguments, which all users of a
    machine can see.
    """


@token.command()
@click.option("--path", is_flag=True, help="Print its file instead of the token.")
@json_option
def show(path: bool, as_json: bool) -> None:
    """Print the token, or the path of its file."""
    home = Home.default()
    file = node_file.token_file(home)
    known = node_file.read_token(home)
    if not known:
        raise UsageError(
            f"there is no token in {home.path}",
            because="no node was ever started in this home",
            hint="`shoal up` starts one",
        )
    if as_json:
        echo_json({"path": str(file)} if path else {"path": str(file), "token": known})
        return
    echo(str(file) if path else known)


@token.command()
@json_option
@quiet_option
def rotate(as_json: bool, quiet: bool) -> None:
    """Create a new token and invalidate the old one.

    Programs and browsers that use the old token are disconnected within a second.
    Members authenticate with certificates and are not affected.
    """
    home = Home.default()
    if (found := node_file.running(home)) is not None:
        with api.client_of(found) as client:
            path = client.rotate_token()
    else:
        from shoal.api.server import tokens  # noqa: PLC0415 - Slow to import.
        from shoal.core.durability.audit_chain import AuditEntry  # noqa: PLC0415
        from shoal.runtime.durability.audit_log import note  # noqa: PLC0415

        tokens.rotate(home)
        note(home, AuditEntry(what="token", way="command", because="a new token"))
        path = str(node_file.token_file(home))
    if as_json:
        echo_json({"path": path})
        return
    talk(f"the new token is in {path}", quiet=quiet)
    suggest("shoal token show", "shoal web", quiet=quiet)
