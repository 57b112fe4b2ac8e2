"""`shoal revoke`: remove a node from the shoal."""

from __future__ import annotations

import click

from shoal.api.client import client as api
from shoal.api.documents import name_fields
from shoal.cli.display.printing import echo_json
from shoal.cli.job_input.completion_types import NODE
from shoal.cli.options import json_option, node_option, quiet_option, suggest, talk


@click.command()
@click.argument("member", type=NODE, metavar="NODE")
@node_option
@json_option
@quiet_option
def revoke(member: str, node: str | None, as_json: bool, quiet: bool) -> None:
    """Remove a NODE from the shoal by revoking its grants.

    NODE is an id, or a name that `shoal nodes` shows. The node can come back only with
    a new invitation.
    """
    with api.connect(node) as client:
        reply = client.revoke(member)
    if as_json:
        echo_json({"revoked": name_fields(reply.node)})
        return
    talk(f"{reply.node.petname} is no longer a member", quiet=quiet)
    suggest("shoal nodes", quiet=quiet)
