"""Messages of `Calls` on a plain socket: how long, which kind, and the message.

Clients on the node's own machine use it, since a stream of gRPC costs both ends more
time for each message than all the rest of a call. `api/calls.py` is the node's side.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from google.protobuf.message import Message

SUFFIX: Final = ".calls"
HEAD_BYTES: Final = 5
MESSAGE: Final = 0
ERROR: Final = 1
END: Final = 2
"""No answer follows."""

FRAME_BYTES_MAX: Final = 64 << 20


def calls_socket(api_socket: str | Path) -> Path:
    """Return where clients of this machine call functions."""
    return Path(api_socket).with_suffix(SUFFIX)


def frame(kind: int, message: Message) -> bytes:
    """Return a message as it goes over the socket."""
    data = message.SerializeToString()
    return head(len(data), kind) + data


def head(size: int, kind: int) -> bytes:
    """Return what goes before so many bytes."""
    return size.to_bytes(4, "little") + bytes((kind,))
