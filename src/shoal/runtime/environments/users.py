"""Which user of the machine a task runs as, where it shares files with others."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from shoal.model.ids import OwnerId

USERS: Final = 1_000_000


def user_of(owners: tuple[OwnerId, ...]) -> int:
    """Return a number for owners; two may have the same, which shares no folder."""
    digest = hashlib.sha256("\0".join(owners).encode()).digest()
    return 1 + int.from_bytes(digest[:4], "big") % USERS
