"""Items exchanged between a client that calls functions and the interpreter.

An item is a kind (one byte), a number (eight bytes, little-endian) and a body. Nodes
look at the first two only: a body is pickled, and no node ever loads a pickle.

Down, to an interpreter:

    FUNCTION  a function to keep under this number
    PART      the beginning of a call's payload
    CALL      function (four bytes, 0: the payload has it) and the rest of a payload
    RECALL    give back up to this many calls that have not begun, the newest first
    STOP      interrupt this call, if it runs
    LEAVE     give back what has not begun, and end

Up, from it:

    READY     it takes calls now; the body says which Python it is
    VALUE     what a call returned; VALUE_PART is the beginning of it
    RAISED    the exception of a call; never in parts
    BACK      this call has not begun and will not
    GOING     it begins no more calls, and ends when it is told to leave

An interpreter has this file but nothing else of shoal, so it imports nothing of ours.
"""

import struct
from typing import Final

FUNCTION: Final = 1
PART: Final = 2
CALL: Final = 3
RECALL: Final = 4
STOP: Final = 5
LEAVE: Final = 6
READY: Final = 7
VALUE: Final = 8
VALUE_PART: Final = 9
RAISED: Final = 10
BACK: Final = 11
GOING: Final = 12

HEAD: Final = struct.Struct("<BQ")
HEAD_BYTES: Final = HEAD.size
CALL_HEAD: Final = struct.Struct("<BQI")
CALL_HEAD_BYTES: Final = CALL_HEAD.size

NUMBER_MAX: Final = (1 << 53) - 1
PART_BYTES: Final = 200_000
"""A payload that is longer than this travels in several items."""

PAYLOAD_BYTES_MAX: Final = 1 << 30
"""The arguments of one call; larger ones belong into files."""

ITEM_BYTES_MAX: Final = 262_144
"""The same as in `protocol.limits`, which an interpreter does not have."""


def item(kind: int, number: int, body: bytes = b"") -> bytes:
    """Return the bytes of an item."""
    return HEAD.pack(kind, number) + body


def call_item(number: int, function: int, body: bytes) -> bytes:
    """Return the item that begins a call, with the last part of its payload."""
    return CALL_HEAD.pack(CALL, number, function) + body


def head(data: bytes) -> tuple[int, int]:
    """Return kind and number of an item that has at least its head."""
    kind, number = HEAD.unpack_from(data)
    return kind, number
