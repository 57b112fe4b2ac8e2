"""`shoal invite`: let somebody join the shoal."""

from __future__ import annotations

import click

from shoal.api import client as api
from shoal.cli.options import json_option, node_option, quiet_option, talk
from shoal.cli.printing import echo_json

ROLES = ("member", "worker", "submit", "admin")


@click.command()
@click.option("--role", type=click.Choice(ROLES), default="member", show_default=True)
@click.option(
    "--uses",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="How many may join by it.",
)
@click.option("--ttl", default="1h", show_default=True, help="How long it holds.")
@node_option
@json_option
@quiet_option
def invite(
    role: str, uses: int, ttl: str, node: str | None, as_json: bool, quiet: bool
) -> None:
    """Print the command by which another machine joins this shoal.

    Members may run code on each other's machines: give it to people whom you trust.
    """
    from shoal.model.units import parse_duration  # noqa: PLC0415 - Slow to import.

    holds_s = parse_duration(ttl)
    with api.connect(node) as client:
        reply = client.invite(role, uses, holds_s)
    if as_json:
        fields = {"invitation": reply.text, "shoal": reply.shoal, "role": role}
        echo_json({**fields, "addresses": list(reply.addresses), "ttl": ttl})
        return
    click.echo(reply.text if quiet else f"shoal join {reply.text}")
    holds = "once" if uses == 1 else f"{uses} times"
    talk(f"type that on the other machine: it works {holds}, for {ttl}", quiet=quiet)
    if reply.only_here:
        talk(
            "note: only this machine can follow it, since the node listens on loopback;"
            "\n      shoal down; shoal up --listen 0.0.0.0:4001 opens it to others",
            quiet=quiet,
        )
