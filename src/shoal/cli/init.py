"""`shoal init`: make a shoal."""

from __future__ import annotations

import click

from shoal.cli.options import json_option, quiet_option, suggest, talk
from shoal.cli.printing import echo_json
from shoal.errors import ShoalError
from shoal.runtime.home import Home


@click.command()
@click.argument("name")
@json_option
@quiet_option
def init(name: str, as_json: bool, quiet: bool) -> None:
    """Make a shoal called NAME, of which this machine is the first member.

    Its root key is made here, and stays here: keep a copy of root.key in a safe place.
    Without this, the first `shoal up` makes a shoal called home.
    """
    from shoal.net.identity import Identity  # noqa: PLC0415 - Slow to import.
    from shoal.net.petname import petname  # noqa: PLC0415
    from shoal.runtime import membership  # noqa: PLC0415

    home = Home.default()
    home.prepare()
    known = membership.load(home)
    if known is not None:
        raise ShoalError(
            f'this node belongs to the shoal "{known.shoal}" already',
            because=f"{home.membership} says so",
            hint="another SHOAL_HOME is another node; or move that file away",
        )
    identity = Identity.load_or_create(home.key)
    made = membership.found(home, identity, name)
    if as_json:
        echo_json({"shoal": name, "root": made.root, "node": identity.node})
        return
    node = petname(identity.node)
    talk(f'made the shoal "{name}"; {node} is its first member', quiet=quiet)
    talk(f"its root key is {home.root_key}: keep a copy in a safe place", quiet=quiet)
    suggest("shoal up --listen 0.0.0.0:4001", "shoal invite", quiet=quiet)
