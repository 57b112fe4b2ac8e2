"""`shoal accept`: let machines into the shoal that are near, and asked."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from shoal.api import client as api
from shoal.api.documents import requests_fields
from shoal.cli.naming import NODE
from shoal.cli.options import json_option, node_option, suggest, talk
from shoal.cli.printing import echo_json
from shoal.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from shoal.api.client import Client
    from shoal.api.shoal_pb2 import RequestsReply


@click.command()
@click.argument("machine", default="", type=NODE, metavar="[NODE]")
@click.option("--yes", is_flag=True, help="Do not ask; NODE must be given.")
@click.option("--decline", is_flag=True, help="Say no to NODE.")
@click.option(
    "--mine", is_flag=True, help="They are machines of yours, as in shoal invite."
)
@node_option
@json_option
def accept(
    machine: str, yes: bool, decline: bool, mine: bool, node: str | None, as_json: bool
) -> None:
    """Show which machines on the local network ask to join, and let them in.

    Compare the code with what the other screen shows: if it is another, somebody is in
    between. Members may run code on each other's machines. On the machine that asked,
    this joins the shoal that has let it in.
    """
    if (yes or decline) and not machine:
        raise UsageError(
            "--yes and --decline need a NODE",
            because="nobody is let in unseen",
            hint="`shoal accept` lists who asks",
        )
    with api.connect(node) as client:
        found = client.requests()
        if yes or decline:
            client.accept(machine, decline=decline, mine=mine)
            talk(f"{machine} {'is not let in' if decline else 'may join'}")
        elif as_json:
            echo_json(requests_fields(found))
        else:
            _go_through(client, found, machine, mine=mine)


def _go_through(
    client: Client, found: RequestsReply, machine: str, *, mine: bool
) -> None:
    """Ask about each in turn; what is no clear yes is no, but is not said to them."""
    asked = 0
    for one in found.newcomers:
        if machine in ("", one.name.petname, one.name.id):
            asked += 1
            wants = f'{one.name.petname} wants to join "{found.shoal}"'
            if _says_yes(f"{wants}  {one.has}  code {one.code}  accept?"):
                client.accept(one.name.id, mine=mine)
                talk(f"{one.name.petname} may join")
                suggest("shoal nodes")
    near = found.near
    if near.state == "accepted" and machine in ("", near.name.petname, near.name.id):
        asked += 1
        lets = f'{near.name.petname} lets this machine into "{near.shoal}"'
        if _says_yes(f"{lets}  code {near.code}  join?"):
            client.accept(near.name.id)
            suggest("shoal nodes")
    if not asked:
        _say_nobody(found, machine)


def _says_yes(question: str) -> bool:
    if not sys.stdin.isatty():
        talk(question)
        return sys.stdin.readline().strip().lower() in ("y", "yes")
    return click.confirm(question, default=False, err=True)


def _say_nobody(found: RequestsReply, machine: str) -> None:
    if machine:
        raise NotFoundError(
            f"nobody called '{machine}' asks to join",
            because="it asks no more, or has never asked",
            hint="`shoal accept` lists who asks",
        )
    talk("nobody asks to join")
    near = found.near
    if near.state == "asking":
        talk(f'this machine asks to join "{near.shoal}"; its code is {near.code}')
        talk(f"`shoal accept` on {near.name.petname} lets it in")
