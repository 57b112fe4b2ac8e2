"""`shoal renew`: a new grant for the node that made the shoal, by the root key."""

from __future__ import annotations

import time
from pathlib import Path

import click

from shoal.api import whereabouts
from shoal.cli.options import json_option, quiet_option, suggest, talk
from shoal.cli.passphrases import passphrase, passphrase_option
from shoal.cli.printing import echo_json
from shoal.errors import KeyLockedError, NotFoundError, UsageError
from shoal.runtime.home import Home


@click.command()
@click.option(
    "--root-key", default="", metavar="FILE", help="Where the key is, if not here."
)
@passphrase_option
@json_option
@quiet_option
def renew(root_key: str, passphrase_file: str, as_json: bool, quiet: bool) -> None:
    """Give the node here a new grant for ten years, signed by the root key.

    Grants of members renew themselves. That of the node which made the shoal does so
    only while its root key lies open in its home; else this does it.
    """
    from shoal.core.auditing import Entry  # noqa: PLC0415 - Slow to import.
    from shoal.net.identity import Identity  # noqa: PLC0415
    from shoal.runtime import membership  # noqa: PLC0415
    from shoal.runtime.audit import Audit  # noqa: PLC0415

    home = Home.default()
    if whereabouts.running(home) is not None:
        raise UsageError(
            "the node is running",
            because="it shows the grant that it has until it starts again",
            hint="shoal down, then the same command, then shoal up",
        )
    known = membership.load(home)
    if known is None:
        raise NotFoundError("this node belongs to no shoal", hint="shoal init NAME")
    path = Path(root_key) if root_key else home.root_key
    try:
        root = Identity.load(path)
    except KeyLockedError:
        root = Identity.load(path, passphrase(passphrase_file))
    except FileNotFoundError:
        raise NotFoundError(
            f"there is no key in {path}", hint="--root-key FILE says where it is"
        ) from None
    new = membership.renewed_by_root(known, root)
    membership.save(home, new)
    because = f"by the root key, serial {new.grant.serial}"
    target = new.grant.node
    Audit(home).note(Entry(what="renew", way="command", target=target, because=because))
    if as_json:
        echo_json({"node": target, "ends_s": new.grant.expires_wall_s})
        return
    until = time.strftime("%Y-%m-%d", time.localtime(new.grant.expires_wall_s))
    talk(f"the grant of this node lasts until {until}", quiet=quiet)
    suggest("shoal up", quiet=quiet)
