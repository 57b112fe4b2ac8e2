"""Framing of calls over local sockets: each frame is a kind (1 byte) and a message.

Commands and programs on the node's machine use this instead of gRPC (decision 35):
importing gRPC takes longer than everything else a short command does, and a gRPC stream
costs both ends more time per message than the rest of a call. `socket_client` and
`socket_server` are the two ends for the API, `client/wires` and
`service/function_calls` those for function calls.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from shoal.framing import FrameBuffer, framed

if TYPE_CHECKING:
    from google.protobuf.message import Message

SUFFIX: Final = ".calls"
MESSAGE: Final = 0
ERROR: Final = 1
END: Final = 2
"""No more answers follow."""

FRAME_BYTES_MAX: Final = 64 << 20


def calls_socket(api_socket: str | Path) -> Path:
    """Return the socket on which local clients call functions."""
    return Path(api_socket).with_suffix(SUFFIX)


def frame(kind: int, message: Message) -> bytes:
    """Encode a message as a frame."""
    return packed(kind, message.SerializeToString())


def packed(kind: int, data: bytes) -> bytes:
    """Return a frame with a kind and its payload."""
    return framed(bytes((kind,)) + data)


def frame_buffer() -> FrameBuffer:
    """Return a buffer that splits received bytes into frames of 1 byte or more."""
    return FrameBuffer(FRAME_BYTES_MAX, bytes_min=1)
