"""`shoal accept`: approve join requests from the local network."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from shoal.api.client import client as api
from shoal.api.documents import requests_fields
from shoal.cli.display.printing import echo_json, quoted
from shoal.cli.job_input.completion_types import NODE
from shoal.cli.options import json_option, node_option, suggest, talk
from shoal.errors import NotAllowedError, NotFoundError, UsageError

if TYPE_CHECKING:
    from shoal.api.client.client import Client
    from shoal.api.shoal_pb2 import Newcomer, RequestsReply


@click.command()
@click.argument("machine", default="", type=NODE, metavar="[NODE]")
@click.option(
    "--code",
    default="",
    metavar="CODE",
    help="Code shown on its screen; do not prompt.",
)
@click.option(
    "--yes",
    is_flag=True,
    help="Do not prompt; NODE must be a full id, which is its key.",
)
@click.option("--decline", is_flag=True, help="Decline the request of NODE.")
@click.option(
    "--mine", is_flag=True, help="The machines are yours, as in shoal invite."
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
    """List join requests from the local network, and approve them.

    Type the code shown on the other machine's screen. It is not shown here: a code
    that differs from the expected one means that somebody is intercepting. Members can
    run code on each other's machines. On the machine that asked to join, this command
    joins the shoal that approved the request.
    """
    if (yes or decline) and not machine:
        raise UsageError(
            "--yes and --decline need a NODE",
            because="nobody is approved unseen",
            hint="`shoal accept` lists the requests",
        )
    with api.connect(node) as client:
        found = client.requests()
        if decline:
            client.accept(machine, decline=True)
            talk(f"declined {machine}")
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
    """Approve a request without a prompt; return the machine's name.

    The machine is identified by its code, or by its full id, which is its key. A
    petname is not enough: an attacker can search for a key with the same petname.
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
            "nobody was approved",
            because=f"no request has the code '{code[:40]}'",
            hint="read the code on the screen of the machine itself",
        )
    raise UsageError(
        "--yes needs the full id of NODE, or use --code",
        because="other machines can have the same short name",
        hint="`shoal accept` asks for the code that its screen shows",
    )


def _go_through(
    client: Client, found: RequestsReply, machine: str, *, mine: bool
) -> None:
    """Prompt for each request; anything but a clear yes leaves it pending."""
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
        talk(f"{near.name.petname} lets this machine join {quoted(near.shoal)}")
        if _says_yes("did that machine accept the code? join?"):
            client.accept(near.name.id)
            suggest("shoal nodes")
    if not asked:
        _say_nobody(found, machine)


def _typed_code(one: Newcomer, shoal: str) -> str:
    """Prompt for the code on the other screen; an empty answer leaves it pending."""
    talk(f"{one.name.petname} wants to join {quoted(shoal)}")
    if one.has:
        talk(f"it says it lends {quoted(one.has)}")
    question = "type the code shown on its screen, or press enter to skip"
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
            f"no join request from '{machine}'",
            because="the request has expired, or was never made",
            hint="`shoal accept` lists the requests",
        )
    talk("no join requests")
    near = found.near
    if near.state == "asking":
        talk(f"code {near.code}")
        talk(f"this machine has asked to join {quoted(near.shoal)}")
        talk(f"run `shoal accept` on {near.name.petname} and type that code there")
