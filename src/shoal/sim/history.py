"""The whole history of a world in sixteen bytes: same seed, same hash (I13)."""

from __future__ import annotations

import hashlib
from typing import Final, final

import msgspec

from shoal.core.events import Effect, Event
from shoal.model.ids import NodeId

BATCH: Final = 256
"""So many events are encoded at once."""

Moment = tuple[float, int, Event | NodeId, list[Effect]]
"""When, which node, what it was told (or by whom), and what it made of it."""


@final
class History:
    """Takes in every event with its effects, in order; forgets them once hashed."""

    def __init__(self) -> None:
        # Not hashed yet. It is always the same list: hosts add to it, and flush.
        self.batch: list[Moment] = []
        self._hashed = 0  # events
        self._hash = hashlib.blake2b(digest_size=16)
        self._encoder = msgspec.msgpack.Encoder()
        self._buffer = bytearray()

    @property
    def events(self) -> int:
        """How many were taken in."""
        return self._hashed + len(self.batch)

    def digest(self) -> str:
        """Return the hash of all that was taken in so far."""
        self.flush()
        return self._hash.hexdigest()

    def flush(self) -> None:
        """Hash the batch. When that is done is part of the hash: at `BATCH` events."""
        self._encoder.encode_into(self.batch, self._buffer)
        self._hash.update(self._buffer)
        self._hashed += len(self.batch)
        self.batch.clear()
