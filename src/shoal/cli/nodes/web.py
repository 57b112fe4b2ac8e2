"""`shoal web`: open a node's web page in a browser."""

from __future__ import annotations

import os
import sys
from typing import Final

import click

from shoal.api import node_file
from shoal.api.client import client as api
from shoal.cli.display.printing import echo_json
from shoal.cli.job_input.completion_types import JOB
from shoal.cli.job_input.selection import one
from shoal.cli.options import json_option, node_option, suggest, talk
from shoal.cli.terminal import echo
from shoal.errors import ShoalError
from shoal.runtime.home import Home

EVERYWHERE: Final = frozenset({"0.0.0.0", "[::]"})  # noqa: S104
DISPLAYS: Final = ("DISPLAY", "WAYLAND_DISPLAY")


@click.command()
@click.argument("job", default="", type=JOB)
@click.option("--no-open", is_flag=True, help="Only print the address.")
@node_option
@json_option
def web(job: str, no_open: bool, node: str | None, as_json: bool) -> None:
    """Open the node's web page, or that of a JOB, in a browser; print its address.

    The address contains the node's token: anyone who has it can do what you can. The
    browser remembers the token, so later the plain address is enough.
    """
    home = Home.default()
    with api.connect(node, home) as client:
        info = client.info()
        path = f"/jobs/{client.get(one(client, job), 1).id}" if job else "/"
    if not info.web_address:
        raise ShoalError(
            f"{info.name.petname} has no web page",
            because="it was started with --no-web, or `shoal set web off`",
            hint="start it again: shoal down; shoal up",
        )
    host, _, port = info.web_address.rpartition(":")
    if host in EVERYWHERE:
        host = node.rpartition(":")[0] if node else "127.0.0.1"
    scheme = "https" if info.web_print else "http"
    url = f"{scheme}://{host}:{port}{path}{_key(node, home)}"
    if as_json:
        echo_json({"address": f"{host}:{port}", "url": url})
        return
    echo(url)
    if info.web_print:
        talk("its certificate is self-signed: compare its SHA-256 in the browser")
        talk(f"  {info.web_print}")
    if not no_open and any(os.environ.get(name) for name in DISPLAYS):
        _open(home, url)
    elif not no_open and sys.stdout.isatty():
        talk("there is no display here: open the address in a browser on this machine")
        suggest(f"ssh -L {port}:{host}:{port} THIS-MACHINE, from your own machine")


def _key(node: str | None, home: Home) -> str:
    """Return the fragment of the address, which a browser does not send."""
    token = node_file.read_token(home)
    if node:  # The address may belong to somebody else, who must not get this token.
        token = os.environ.get("SHOAL_TOKEN", "")
    return f"#token={token}" if token else ""


def _open(home: Home, url: str) -> None:
    """Open a browser on a private file, because anybody can read arguments."""
    import webbrowser  # noqa: PLC0415 - Not needed without a display.
    from html import escape  # noqa: PLC0415

    from shoal.runtime.membership.shoal_membership import write_private  # noqa: PLC0415 - Slow.

    file = home.path / "web.html"
    page = f'<!doctype html><meta http-equiv="refresh" content="0;url={escape(url)}">\n'
    write_private(file, page.encode())
    if not webbrowser.open(file.as_uri()):
        talk("cannot start a browser: open the address yourself")
