"""`shoal token`: what opens this node to programs and to other machines."""

from __future__ import annotations

import click

from shoal.api import client as api
from shoal.api import whereabouts
from shoal.cli.options import json_option, quiet_option, suggest, talk
from shoal.cli.printing import echo_json
from shoal.cli.terminal import echo
from shoal.errors import UsageError
from shoal.runtime.home import Home


@click.group()
def token() -> None:
    """Show or replace the token of this node.

    Whoever has the token can do what you can. Give it to programs by a file, not in
    their arguments, which all users of a machine see: SHOAL_TOKEN_FILE, --token-file.
    """


@token.command()
@click.option("--path", is_flag=True, help="Print where it is, and not what it is.")
@json_option
def show(path: bool, as_json: bool) -> None:
    """Print the token, or where it is."""
    home = Home.default()
    file = whereabouts.token_file(home)
    known = whereabouts.read_token(home)
    if not known:
        raise UsageError(
            f"there is no token in {home.path}",
            because="no node was ever started there",
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
    """Make a new token; the old one opens nothing any more.

    Whoever came in by the old one is cut off within a second: programs, the page in a
    browser. Members come by their certificates and notice nothing.
    """
    home = Home.default()
    if (found := whereabouts.running(home)) is not None:
        with api.client_of(found) as client:
            path = client.rotate_token()
    else:
        from shoal.api import tokens  # noqa: PLC0415 - Slow to import.
        from shoal.core.auditing import Entry  # noqa: PLC0415
        from shoal.runtime.audit import note  # noqa: PLC0415

        tokens.rotate(home)
        note(home, Entry(what="token", way="command", because="a new token"))
        path = str(whereabouts.token_file(home))
    if as_json:
        echo_json({"path": path})
        return
    talk(f"a new token is in {path}", quiet=quiet)
    suggest("shoal token show", "shoal web", quiet=quiet)
