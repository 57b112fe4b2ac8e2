"""`shoal web`: open the page of a node in a browser."""

from __future__ import annotations

import os
import sys
from typing import Final

import click

from shoal.api import client as api
from shoal.api import whereabouts
from shoal.cli.naming import JOB
from shoal.cli.options import json_option, node_option, suggest, talk
from shoal.cli.printing import echo_json
from shoal.cli.selecting import one
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
    """Open the page of the node in a browser, or that of a JOB, and print its address.

    The address has the token of the node in it: whoever has it can do what you can. The
    page keeps the token, so later its plain address will do.
    """
    home = Home.default()
    with api.connect(node, home) as client:
        info = client.info()
        path = f"/jobs/{client.get(one(client, job), 1).id}" if job else "/"
    if not info.web_address:
        raise ShoalError(
            f"{info.name.petname} has no page",
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
        talk("no authority knows its certificate: compare its SHA-256 in the browser")
        talk(f"  {info.web_print}")
    if not no_open and any(os.environ.get(name) for name in DISPLAYS):
        _open(home, url)
    elif not no_open and sys.stdout.isatty():
        talk("there is no display here: open the address in a browser of this machine")
        suggest(f"ssh -L {port}:{host}:{port} THIS-MACHINE, from where you sit")


def _key(node: str | None, home: Home) -> str:
    """Return the end of the address, which a browser sends to nobody."""
    token = whereabouts.read_token(home)
    if node:  # An address may be somebody else's, who must not get this token.
        token = os.environ.get("SHOAL_TOKEN", "")
    return f"#token={token}" if token else ""


def _open(home: Home, url: str) -> None:
    """Open a browser by a private file: anybody may read the arguments of programs."""
    import webbrowser  # noqa: PLC0415 - Not needed without a display.
    from html import escape  # noqa: PLC0415

    from shoal.runtime.membership import write_private  # noqa: PLC0415 - Slow.

    file = home.path / "web.html"
    page = f'<!doctype html><meta http-equiv="refresh" content="0;url={escape(url)}">\n'
    write_private(file, page.encode())
    if not webbrowser.open(file.as_uri()):
        talk("no browser could be started: open the address yourself")
