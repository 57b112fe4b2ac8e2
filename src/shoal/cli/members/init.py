"""`shoal init`: create a shoal."""

from __future__ import annotations

from pathlib import Path

import click

from shoal.cli.display.printing import echo_json
from shoal.cli.members.passphrases import passphrase, passphrase_option
from shoal.cli.options import json_option, quiet_option, suggest, talk
from shoal.errors import ShoalError
from shoal.runtime.home import Home


@click.command()
@click.argument("name")
@click.option("--lock", is_flag=True, help="Lock the root key with a passphrase.")
@click.option(
    "--root-key",
    default="",
    metavar="FILE",
    help="File for the root key, such as on a USB stick, instead of this machine.",
)
@passphrase_option
@json_option
@quiet_option
def init(
    name: str,
    lock: bool,
    root_key: str,
    passphrase_file: str,
    as_json: bool,
    quiet: bool,
) -> None:
    """Create a shoal called NAME with this machine as its first member.

    This creates the root key: keep a copy in a safe place. The node does not need the
    key from day to day, so lock it or keep it elsewhere if you lend this machine to
    others. If you skip this command, the first `shoal up` creates a shoal called home.
    """
    from shoal.net.identity.identity import Identity  # noqa: PLC0415 - Slow to import.
    from shoal.net.identity.petname import petname  # noqa: PLC0415
    from shoal.runtime.membership import shoal_membership  # noqa: PLC0415

    home = Home.default()
    home.prepare()
    known = shoal_membership.load(home)
    if known is not None:
        raise ShoalError(
            f'this node already belongs to the shoal "{known.shoal}"',
            because=f"{home.membership} says so",
            hint="use another SHOAL_HOME for another node, or move that file away",
        )
    identity = Identity.load_or_create(home.key)
    path = Path(root_key).expanduser() if root_key else home.root_key
    said = passphrase(passphrase_file, is_new=True) if lock else ""
    made = shoal_membership.found(home, identity, name, path, said)
    if as_json:
        echo_json({"shoal": name, "root": made.root, "node": identity.node})
        return
    node = petname(identity.node)
    talk(f'created the shoal "{name}"; {node} is its first member', quiet=quiet)
    talk(f"its root key is {path}: keep a copy in a safe place", quiet=quiet)
    suggest("shoal up --listen 0.0.0.0:4001", "shoal invite", quiet=quiet)
