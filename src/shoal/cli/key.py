"""`shoal key`: lock the root key of a shoal, and open it again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from shoal.cli.options import quiet_option, suggest, talk
from shoal.cli.passphrases import passphrase, passphrase_option
from shoal.errors import NotFoundError, UsageError
from shoal.runtime.home import Home

if TYPE_CHECKING:
    from pathlib import Path


@click.group()
def key() -> None:
    """Lock the root key of a shoal with a passphrase, or open it.

    Who has the root key decides who is a member. A node does not need it from day to
    day: it invites, revokes and renews by its own grant. While the key is locked,
    somebody who gets hold of the files of this node cannot make a shoal of his own of
    it: the grant of the node can be revoked with the key, wherever a copy of that is.
    """


@key.command()
@passphrase_option
@quiet_option
def lock(passphrase_file: str, quiet: bool) -> None:
    """Lock the root key with a passphrase. Without it the key is lost."""
    from shoal.net import locked_key  # noqa: PLC0415 - Slow to import.
    from shoal.net.identity import Identity  # noqa: PLC0415

    home = Home.default()
    path = _root_key(home)
    if locked_key.is_locked(path.read_bytes()):
        raise UsageError("the root key is locked already", hint="shoal key unlock")
    identity = Identity.load(path)
    said = passphrase(passphrase_file, is_new=True)
    _replace(home, path, locked_key.lock(identity.pem(), said), "locked")
    talk(f"{path} is locked", quiet=quiet)
    suggest("shoal key unlock", "shoal renew", quiet=quiet)


@key.command()
@passphrase_option
@quiet_option
def unlock(passphrase_file: str, quiet: bool) -> None:
    """Open the root key, for good: lock it again when it was used."""
    from shoal.net.identity import Identity  # noqa: PLC0415 - Slow to import.

    home = Home.default()
    path = _root_key(home)
    identity = Identity.load(path, passphrase(passphrase_file))
    _replace(home, path, identity.pem(), "unlocked")
    talk(f"{path} is open: whoever can read it decides who is a member", quiet=quiet)
    suggest("shoal key lock", quiet=quiet)


def _root_key(home: Home) -> Path:
    if not home.root_key.exists():
        raise NotFoundError(
            "there is no root key here",
            because=f"{home.root_key} does not exist: the shoal was made elsewhere, "
            "or its key is in another file",
            hint="type it on the node that made the shoal",
        )
    return home.root_key


def _replace(home: Home, path: Path, data: bytes, how: str) -> None:
    from shoal.core.auditing import Entry  # noqa: PLC0415 - Slow to import.
    from shoal.runtime.audit import Audit  # noqa: PLC0415
    from shoal.runtime.membership import write_private  # noqa: PLC0415

    write_private(path, data)
    Audit(home).note(Entry(what="key", way="command", because=f"root key {how}"))
