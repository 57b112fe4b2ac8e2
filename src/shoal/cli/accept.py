"""`shoal accept`: let machines into the shoal that are near, and asked."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from shoal.api import client as api
from shoal.api.documents import requests_fields
from shoal.cli.naming import NODE
from shoal.cli.options import json_option, node_option, suggest, talk
from shoal.cli.printing import echo_json, quoted
from shoal.errors import NotAllowedError, NotFoundError, UsageError

if TYPE_CHECKING:
    from shoal.api.client import Client
    from shoal.api.shoal_pb2 import Newcomer, RequestsReply


@click.command()
@click.argument("machine", default="", type=NODE, metavar="[NODE]")
@click.option(
    "--code", default="", metavar="CODE", help="What its own screen shows; do not ask."
)
@click.option(
    "--yes", is_flag=True, help="Do not ask; NODE is a whole id, which is its key."
)
@click.option("--decline", is_flag=True, help="Say no to NODE.")
@click.option(
    "--mine", is_flag=True, help="They are machines of yours, as in shoal invite."
)
@node_option
@json_option
def accept(
    machine: str,
    code: str,
    yes: bool,
    decline: bool,
    mine: bool,
    node: str | None,
    as_json: bool,
) -> None:
    """Show which machines on the local network ask to join, and let them in.

    Type the code that the other screen shows. It is not shown here: if it is not the
    one that this node expects, somebody is in between. Members may run code on each
    other's machines. On the machine that asked, this joins the shoal that let it in.
    """
    if (yes or decline) and not machine:
        raise UsageError(
            "--yes and --decline need a NODE",
            because="nobody is let in unseen",
            hint="`shoal accept` lists who asks",
        )
    with api.connect(node) as client:
        found = client.requests()
        if decline:
            client.accept(machine, decline=True)
            talk(f"{machine} is not let in")
        elif yes or code:
            name = _let_in(client, found, machine, code, mine=mine)
            talk(f"{name} may join")
        elif as_json:
            echo_json(requests_fields(found))
        else:
            _go_through(client, found, machine, mine=mine)


def _let_in(
    client: Client, found: RequestsReply, machine: str, code: str, *, mine: bool
) -> str:
    """Let one in without a question; return its name.

    It is known by its code, or by its whole id, which is its key. A petname is not
    enough: others can search for a key with the same one.
    """
    for one in found.newcomers:
        name = one.name
        is_code = code == one.code and machine in ("", name.petname, name.id)
        if is_code or (not code and machine == name.id):
            client.accept(name.id, code=one.code, mine=mine)
            return name.petname
    if not code and found.near.name.id == machine:
        client.accept(machine)
        return machine
    if code:
        raise NotAllowedError(
            "nobody is let in",
            because=f"nobody who asks has the code '{code[:40]}'",
            hint="read the code on the screen of the machine itself",
        )
    raise UsageError(
        "--yes needs the whole id of NODE, or use --code",
        because="other machines can have the same short name",
        hint="`shoal accept` asks for the code that its screen shows",
    )


def _go_through(
    client: Client, found: RequestsReply, machine: str, *, mine: bool
) -> None:
    """Ask about each in turn; what is no clear yes is no, but is not said to them."""
    asked = 0
    for one in found.newcomers:
        if machine in ("", one.name.petname, one.name.id):
            asked += 1
            if code := _typed_code(one, found.shoal):
                client.accept(one.name.id, code=code, mine=mine)
                talk(f"{one.name.petname} may join")
                suggest("shoal nodes")
    near = found.near
    if near.state == "accepted" and machine in ("", near.name.petname, near.name.id):
        asked += 1
        talk(f"code {near.code}")
        talk(f"{near.name.petname} lets this machine into {quoted(near.shoal)}")
        if _says_yes("did that machine take the code? join?"):
            client.accept(near.name.id)
            suggest("shoal nodes")
    if not asked:
        _say_nobody(found, machine)


def _typed_code(one: Newcomer, shoal: str) -> str:
    """Ask for the code on the other screen; nothing typed is no, but is not said."""
    talk(f"{one.name.petname} wants to join {quoted(shoal)}")
    if one.has:
        talk(f"it says that it lends {quoted(one.has)}")
    question = "type the code that its own screen shows, or nothing to leave it"
    if not sys.stdin.isatty():
        talk(question)
        return sys.stdin.readline().strip()
    typed: str = click.prompt(question, default="", show_default=False, err=True)
    return typed.strip()


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
        talk(f"code {near.code}")
        talk(f"this machine asks to join {quoted(near.shoal)}")
        talk(f"`shoal accept` on {near.name.petname} takes that code, and lets it in")
