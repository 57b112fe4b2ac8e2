"""Hash the whole history of a world: same seed, same hash (I13)."""

from __future__ import annotations

import hashlib
from typing import Final, final

import msgspec

from shoal.core.events import Effect, Event
from shoal.model.ids import NodeId

BATCH: Final = 256
"""Events encoded at a time."""

Moment = tuple[float, int, Event | NodeId, list[Effect]]
"""Time, node, event (or the sender's name), and resulting effects."""


@final
class WorldHistory:
    """Hashes every event with its effects, in order."""

    def __init__(self) -> None:
        # Not hashed yet. Hosts append to this very list, and flush it.
        self.batch: list[Moment] = []
        self._hashed = 0  # events
        self._hash = hashlib.blake2b(digest_size=16)
        self._encoder = msgspec.msgpack.Encoder()
        self._buffer = bytearray()

    @property
    def events(self) -> int:
        """Number of events so far."""
        return self._hashed + len(self.batch)

    def digest(self) -> str:
        """Return the hash of all events so far."""
        self.flush()
        return self._hash.hexdigest()

    def flush(self) -> None:
        """Hash the batch. Batch borders affect the hash: flush at `BATCH` events."""
        self._encoder.encode_into(self.batch, self._buffer)
        self._hash.update(self._buffer)
        self._hashed += len(self.batch)
        self.batch.clear()
