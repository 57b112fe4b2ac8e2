"""Which blobs are whose: what an owner has sent, and what its jobs have left.

A blob is named by what it holds, so a name could be guessed. A member that comes by
its certificate gets, and uses, only what it has sent or was shown as outputs of its own
jobs. To it everything else is missing, as if it were not here: it sends that again.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shoal.api.callers import Caller
    from shoal.model.ids import BlobId, OwnerId

BLOBS_PER_OWNER_MAX: Final = 200_000
OWNERS_MAX: Final = 256


@final
class Belongings:
    """What owners have sent and seen in this life of the node. The oldest go first."""

    def __init__(self, own: OwnerId) -> None:
        """Note for `own` what the user of the node sends."""
        self._own = own
        self._blobs: dict[OwnerId, dict[BlobId, None]] = {}

    def note(self, caller: Caller, blobs: Iterable[BlobId]) -> None:
        """Know that these belong to the owner of whoever calls."""
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
        """Return those of these that a caller has no right to, in their order."""
        if caller.owner is None:
            return []
        known = self._blobs.get(caller.owner, {})
        return [blob for blob in blobs if blob not in known]


def salt_for(caller: Caller, salt: bytes) -> bytes:
    """Return the salt of a caller's trees: no owner can guess names of another's."""
    if caller.is_own or caller.owner is None:
        return salt
    return hashlib.sha256(salt + caller.owner.encode()).digest()[: len(salt)]
