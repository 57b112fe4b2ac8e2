"""`shoal key`: lock and unlock the shoal's root key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from shoal.cli.members.passphrases import passphrase, passphrase_option
from shoal.cli.options import quiet_option, suggest, talk
from shoal.errors import NotFoundError, UsageError
from shoal.runtime.home import Home

if TYPE_CHECKING:
    from pathlib import Path


@click.group()
def key() -> None:
    """Lock the shoal's root key with a passphrase, or unlock it.

    The holder of the root key decides who is a member. A node does not need it from
    day to day: it invites, revokes and renews with its own grant. While the key is
    locked, somebody who steals this node's files cannot take over the shoal: you can
    revoke the node's grant with any copy of the key.
    """


@key.command()
@passphrase_option
@quiet_option
def lock(passphrase_file: str, quiet: bool) -> None:
    """Lock the root key. Without the passphrase, the key is lost."""
    from shoal.net.identity import locked_key  # noqa: PLC0415 - Slow to import.
    from shoal.net.identity.identity import Identity  # noqa: PLC0415

    home = Home.default()
    path = _root_key(home)
    if locked_key.is_locked(path.read_bytes()):
        raise UsageError("the root key is already locked", hint="shoal key unlock")
    identity = Identity.load(path)
    said = passphrase(passphrase_file, is_new=True)
    _replace(home, path, locked_key.lock(identity.pem(), said), "locked")
    talk(f"{path} is locked", quiet=quiet)
    suggest("shoal key unlock", "shoal renew", quiet=quiet)


@key.command()
@passphrase_option
@quiet_option
def unlock(passphrase_file: str, quiet: bool) -> None:
    """Unlock the root key until you lock it again."""
    from shoal.net.identity.identity import Identity  # noqa: PLC0415 - Slow to import.

    home = Home.default()
    path = _root_key(home)
    identity = Identity.load(path, passphrase(passphrase_file))
    _replace(home, path, identity.pem(), "unlocked")
    talk(
        f"{path} is unlocked: anyone who can read it decides who is a member",
        quiet=quiet,
    )
    suggest("shoal key lock", quiet=quiet)


def _root_key(home: Home) -> Path:
    if not home.root_key.exists():
        raise NotFoundError(
            "there is no root key here",
            because=f"{home.root_key} does not exist: the shoal was created elsewhere, "
            "or its key is in another file",
            hint="run this on the node that created the shoal",
        )
    return home.root_key


def _replace(home: Home, path: Path, data: bytes, how: str) -> None:
    from shoal.core.durability.audit_chain import AuditEntry  # noqa: PLC0415 - Slow to import.
    from shoal.runtime.durability.audit_log import AuditLog  # noqa: PLC0415
    from shoal.runtime.membership.shoal_membership import write_private  # noqa: PLC0415

    write_private(path, data)
    AuditLog(home).note(
        AuditEntry(what="key", way="command", because=f"root key {how}")
    )
