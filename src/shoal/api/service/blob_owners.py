"""Which blobs each owner may use: those it sent, and outputs of its jobs.

A blob's name is a hash of its contents, so a name can be guessed by those who know the
contents. Hence a member with a certificate can read and use only blobs that it sent or
that were listed as outputs of its jobs. All others appear to be missing, and the member
sends them again. The record is kept in memory: up to `OWNERS_MAX` owners, and
`BLOBS_PER_OWNER_MAX` blobs each.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shoal.api.service.callers import Caller
    from shoal.model.ids import BlobId, OwnerId

BLOBS_PER_OWNER_MAX: Final = 200_000
OWNERS_MAX: Final = 256


@final
class BlobOwners:
    """Blobs that owners sent or saw since the node started; oldest are dropped."""

    def __init__(self, own: OwnerId) -> None:
        """Attribute blobs of the node's user to `own`."""
        self._own = own
        self._blobs: dict[OwnerId, dict[BlobId, None]] = {}

    def note(self, caller: Caller, blobs: Iterable[BlobId]) -> None:
        """Record blobs as belonging to the caller's owner."""
        owner = self._own if caller.owner is None else caller.owner
        known = self._blobs.pop(owner, {})
        if len(self._blobs) >= OWNERS_MAX:
            del self._blobs[next(iter(self._blobs))]
        self._blobs[owner] = known
        for blob in blobs:
            known.pop(blob, None)
            known[blob] = None
        while len(known) > BLOBS_PER_OWNER_MAX:
            del known[next(iter(known))]

    def foreign(self, caller: Caller, blobs: Iterable[BlobId]) -> list[BlobId]:
        """Return the blobs that a caller has no right to, in the given order."""
        if caller.owner is None:
            return []
        known = self._blobs.get(caller.owner, {})
        return [blob for blob in blobs if blob not in known]


def salt_for(caller: Caller, salt: bytes) -> bytes:
    """Return the salt of a caller's trees; it differs for other owners."""
    if caller.is_own or caller.owner is None:
        return salt
    return hashlib.sha256(salt + caller.owner.encode()).digest()[: len(salt)]
