"""Frames on local sockets: a length (4 bytes, little-endian), then that many bytes.

Everything on one machine that talks over a stream uses these: commands and their node,
clients that call functions, a node and its supervisors, a node and its lanes. What is
in a frame is up to them. The format is private to one version of shoal.

Supervisors and lanes use this, so it may import nothing but the standard library.
"""

from __future__ import annotations

import struct
from typing import Final, final

LENGTH: Final = struct.Struct("<I")


class FramingError(ValueError):
    """The other side sent a frame of a size that it may not have."""


def framed(*bodies: bytes) -> bytes:
    """Return bodies as they go over a socket, each in a frame of its own."""
    pack = LENGTH.pack
    return b"".join([part for body in bodies for part in (pack(len(body)), body)])


@final
class FrameBuffer:
    """Cuts what comes over a socket into frames. It holds at most one frame."""

    def __init__(self, bytes_max: int, bytes_min: int = 0) -> None:
        """Allow frames whose bodies have from `bytes_min` to `bytes_max` bytes."""
        self._max = bytes_max
        self._min = bytes_min
        self._unread = bytearray()

    def feed(self, data: bytes | bytearray | memoryview) -> list[bytes]:
        """Return the bodies of the frames that are whole now.

        Raises `FramingError`, and then the connection is of no more use.
        """
        self._unread += data
        bodies: list[bytes] = []
        start, end = 0, len(self._unread)
        with memoryview(self._unread) as view:
            while end - start >= LENGTH.size:
                size: int = LENGTH.unpack_from(view, start)[0]
                if not self._min <= size <= self._max:
                    raise FramingError(
                        f"a frame of {size} bytes; {self._min} to {self._max} may be"
                    )
                after = start + LENGTH.size + size
                if after > end:
                    break
                bodies.append(bytes(view[start + LENGTH.size : after]))
                start = after
        del self._unread[:start]
        return bodies
