"""Items of a channel: a kind (one byte) and a body. Nodes in between look at neither.

From the user's command:

    DATA    bytes for the port, or for standard input
    EOF     no more of them
    RESIZE  the terminal has so many rows and columns (two bytes each, little-endian)

From the task's side:

    READY   the port is connected, or the program runs
    DATA    bytes of the port, or of standard output
    ERRORS  bytes of standard error
    EOF     no more bytes of the port
    EXIT    how the program ended (four bytes, signed, little-endian); the last item
    FAILED  why there is no port or program: what, because and hint, each ended by a
            zero byte; the last item

A channel to a port is whole when both sides have said EOF, a channel to a program when
EXIT was said. Whatever ends before that was cut off.
"""

import struct
from typing import Final

DATA: Final = b"D"
EOF: Final = b"E"
RESIZE: Final = b"W"
READY: Final = b"R"
ERRORS: Final = b"2"
EXIT: Final = b"X"
FAILED: Final = b"F"

BODY_BYTES_MAX: Final = 65_536
ITEM_BYTES_MAX: Final = BODY_BYTES_MAX + 1
_SIZE: Final = struct.Struct("<HH")
_CODE: Final = struct.Struct("<i")
_FIELDS: Final = 3


def resize(rows: int, columns: int) -> bytes:
    """Return the item that tells the size of a terminal."""
    return RESIZE + _SIZE.pack(min(rows, 65_535), min(columns, 65_535))


def size_of(body: bytes) -> tuple[int, int] | None:
    """Return rows and columns; None if this is nonsense."""
    return _SIZE.unpack(body) if len(body) == _SIZE.size else None


def exit_item(code: int) -> bytes:
    """Return the item that tells how a program ended."""
    return EXIT + _CODE.pack(code)


def code_of(body: bytes) -> int | None:
    """Return an exit code; None if this is nonsense."""
    return int(_CODE.unpack(body)[0]) if len(body) == _CODE.size else None


def failed(what: str, because: str = "", hint: str = "") -> bytes:
    """Return the item that tells why nothing was opened."""
    said = "".join(f"{text}\0" for text in (what, because, hint)).encode()
    return FAILED + said[:BODY_BYTES_MAX]


def reasons_of(body: bytes) -> tuple[str, str, str]:
    """Return what, because and hint of a failure; empty where nothing was said."""
    texts = body.decode(errors="replace").split("\0")[:_FIELDS]
    what, because, hint = [*texts, "", "", ""][:_FIELDS]
    return what, because, hint
