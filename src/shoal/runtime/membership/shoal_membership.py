"""A node's membership of a shoal, which it founded or joined."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from shoal.core.membership.members import TERM, Members, grant_payload
from shoal.errors import UsageError
from shoal.model.ids import NodeId, OwnerId
from shoal.model.job import PRIORITY_MAX
from shoal.net.identity.identity import Identity, verify
from shoal.protocol.messages import Grant, Role

if TYPE_CHECKING:
    from shoal.runtime.home import Home

YEAR_S: Final = 365 * 86_400.0
FOUNDER: Final[tuple[Role, ...]] = ("scheduler", "worker", "gate", "admin")


class ShoalMembership(msgspec.Struct, frozen=True, kw_only=True):
    """What a node needs to prove its membership and to check that of others."""

    shoal: str
    root: NodeId
    grant: Grant
    gates: tuple[str, ...] = ()  # multiaddrs of nodes that admit others

    def members(self) -> Members:
        """Return the verifier of this shoal's grants."""
        return Members(self.shoal, self.root, verify)


def load(home: Home) -> ShoalMembership | None:
    """Return the membership stored in a home; None if there is none."""
    path = home.membership
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        return msgspec.json.decode(data, type=ShoalMembership)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path} cannot be read",
            because=str(error),
            hint="restore it from a copy, or move it away and join again",
        ) from error


def save(home: Home, membership: ShoalMembership) -> None:
    """Write the membership atomically."""
    text = msgspec.json.format(msgspec.json.encode(membership), indent=2)
    write_private(home.membership, text)


def found(
    home: Home,
    identity: Identity,
    shoal: str,
    root_key: Path | None = None,
    passphrase: str = "",
) -> ShoalMembership:
    """Found a shoal: create a root key, and grant this node every role.

    The key is stored in the home, or in the file `root_key`. With a passphrase it is
    never on disk unencrypted.
    """
    path = root_key or home.root_key
    if passphrase:
        root = Identity.create_locked(path, passphrase)
    else:
        root = Identity.load_or_create(path)
    now_wall_s = time.time()
    grant = issue(
        root,
        Grant(
            node=identity.node,
            shoal=shoal,
            roles=FOUNDER,
            owner=OwnerId(identity.node),
            top_priority=PRIORITY_MAX,
            serial=int(now_wall_s),
            expires_wall_s=now_wall_s + 10 * YEAR_S,
        ),
    )
    membership = ShoalMembership(shoal=shoal, root=root.node, grant=grant)
    save(home, membership)
    return membership


def renewed_by_root(membership: ShoalMembership, root: Identity) -> ShoalMembership:
    """Return the membership with its grant renewed for ten years.

    Raises `UsageError` if `root` is not the root key of this shoal.
    """
    if root.node != membership.root:
        raise UsageError(
            f'that is not the root key of the shoal "{membership.shoal}"',
            because=f"its root is {membership.root}, and not {root.node}",
            hint="give the file that was made by `shoal init`",
        )
    now_wall_s = time.time()
    old = membership.grant
    grant = msgspec.structs.replace(
        old,
        serial=old.serial // TERM * TERM + int(now_wall_s),
        expires_wall_s=now_wall_s + 10 * YEAR_S,
        delegation=None,
    )
    return msgspec.structs.replace(membership, grant=issue(root, grant))


def issue(signer: Identity, grant: Grant) -> Grant:
    """Return a grant signed by `signer`."""
    unsigned = msgspec.structs.replace(grant, signer=signer.node, signature=b"")
    signature = signer.sign(grant_payload(unsigned))
    return msgspec.structs.replace(unsigned, signature=signature)


def next_epoch(home: Home) -> int:
    """Return a number larger than in any earlier run of this node.

    The clock alone does not suffice: it may have been set back.
    """
    path = home.path / "epoch"
    try:
        last = int(path.read_text(encoding="ascii"))
    except (FileNotFoundError, ValueError):
        last = 0
    epoch = max(last + 1, int(time.time()))
    write_private(path, str(epoch).encode())
    return epoch


def write_private(path: Path, data: bytes) -> None:
    """Replace a file atomically and durably, readable by the user alone."""
    draft = path.with_suffix(path.suffix + ".draft")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
