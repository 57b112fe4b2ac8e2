"""`shoal revoke`: turn a node out of the shoal."""

from __future__ import annotations

import click

from shoal.api import client as api
from shoal.api.documents import name_fields
from shoal.cli.naming import NODE
from shoal.cli.options import json_option, node_option, quiet_option, suggest, talk
from shoal.cli.printing import echo_json


@click.command()
@click.argument("member", type=NODE, metavar="NODE")
@node_option
@json_option
@quiet_option
def revoke(member: str, node: str | None, as_json: bool, quiet: bool) -> None:
    """Turn a NODE out of the shoal: its grants are void from now on.

    NODE is an id, or the name of a node that `shoal nodes` shows. It can come back
    only by a new invitation.
    """
    with api.connect(node) as client:
        reply = client.revoke(member)
    if as_json:
        echo_json({"revoked": name_fields(reply.node)})
        return
    talk(f"{reply.node.petname} is no member any more", quiet=quiet)
    suggest("shoal nodes", quiet=quiet)
