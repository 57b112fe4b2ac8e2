"""The interface of a stream."""

from __future__ import annotations

from typing import Protocol


class Pipe(Protocol):
    """Bytes in both directions, in order.

    Reading and writing raise `trio.BrokenResourceError` when it is broken, and
    nothing else.
    """

    async def read(self) -> bytes:
        """Return the next bytes; none at all when the peer has closed its end."""
        ...

    async def write(self, data: bytes) -> None:
        """Write all of `data`. Only one task at a time may do so."""
        ...

    async def close(self) -> None:
        """Close it; bytes that were written still arrive. Never raises."""
        ...

    async def reset(self) -> None:
        """End it at once. Never raises."""
        ...
