"""`shoal renew`: renew the grant of the shoal's first node with the root key."""

from __future__ import annotations

import time
from pathlib import Path

import click

from shoal.api import node_file
from shoal.cli.display.printing import echo_json
from shoal.cli.members.passphrases import passphrase, passphrase_option
from shoal.cli.options import json_option, quiet_option, suggest, talk
from shoal.errors import KeyLockedError, NotFoundError, UsageError
from shoal.runtime.home import Home


@click.command()
@click.option(
    "--root-key",
    default="",
    metavar="FILE",
    help="File of the root key, if it is not in this home.",
)
@passphrase_option
@json_option
@quiet_option
def renew(root_key: str, passphrase_file: str, as_json: bool, quiet: bool) -> None:
    """Give this node a new grant for ten years, signed with the root key.

    Members' grants are renewed automatically. The grant of the node that created the
    shoal is renewed only while the unlocked root key is in its home; otherwise use
    this command.
    """
    from shoal.core.durability.audit_chain import AuditEntry  # noqa: PLC0415 - Slow to import.
    from shoal.net.identity.identity import Identity  # noqa: PLC0415
    from shoal.runtime.durability.audit_log import AuditLog  # noqa: PLC0415
    from shoal.runtime.membership import shoal_membership  # noqa: PLC0415

    home = Home.default()
    if node_file.running(home) is not None:
        raise UsageError(
            "the node is running",
            because="a running node keeps using its old grant",
            hint="shoal down, then this command again, then shoal up",
        )
    known = shoal_membership.load(home)
    if known is None:
        raise NotFoundError("this node belongs to no shoal", hint="shoal init NAME")
    path = Path(root_key) if root_key else home.root_key
    try:
        root = Identity.load(path)
    except KeyLockedError:
        root = Identity.load(path, passphrase(passphrase_file))
    except FileNotFoundError:
        raise NotFoundError(
            f"there is no key in {path}", hint="name its file with --root-key FILE"
        ) from None
    new = shoal_membership.renewed_by_root(known, root)
    shoal_membership.save(home, new)
    because = f"by the root key, serial {new.grant.serial}"
    target = new.grant.node
    AuditLog(home).note(
        AuditEntry(what="renew", way="command", target=target, because=because)
    )
    if as_json:
        echo_json({"node": target, "ends_s": new.grant.expires_wall_s})
        return
    until = time.strftime("%Y-%m-%d", time.localtime(new.grant.expires_wall_s))
    talk(f"this node's grant is valid until {until}", quiet=quiet)
    suggest("shoal up", quiet=quiet)
