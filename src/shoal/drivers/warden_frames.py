"""What a node and its wardens say to each other.

Frames on the socket are a length (4 bytes, little-endian, of what follows), a kind (1
byte) and a body. Texts in a body are joined by NUL, which no argument can contain.

Wardens use this, so it may import nothing but the standard library.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

HEADER_BYTES: Final = 5
HEAD_TEXTS: Final = 15
"""Texts of an order before those whose number they tell."""

START: Final = b"S"
STOP: Final = b"T"
STDOUT: Final = b"O"
STDERR: Final = b"E"
END: Final = b"X"


class Start(NamedTuple):
    """What the node orders. Programs without a slash are looked for in PATH."""

    kept: str  # how the paths of kept output begin
    make: str  # a work directory to make; empty if it is there
    spare: str  # an empty one that nobody needs any more, to be renamed instead
    owner: int  # of that directory; -1 for us
    directory: str  # where the programs begin
    cpus: str  # such as "0,3"; empty for all
    memory_bytes: int  # watched and enforced here; 0 for no limit
    boxed: bool  # in a pid namespace of its own, which gets the notice to stop
    scratch_bytes: int  # in a room
    processes_max: int  # in a room
    env: Sequence[str]
    setup: Sequence[str]
    shown: Sequence[str]  # in a room, see there
    room: Sequence[str]  # builds the sandbox to run in, if it does not stand yet
    secrets: Sequence[str]  # stars in what is kept
    argv: Sequence[str]


def frame(kind: bytes, body: bytes) -> bytes:
    """Return a frame as it goes over the socket."""
    return len(body).to_bytes(4, "little") + kind + body


def pack_start(start: Start) -> bytes:
    """Return the frame of an order; a NUL inside one of its texts is a bug."""
    head = [
        *(start.kept, start.make, start.spare, str(start.owner), start.directory),
        *(start.cpus, str(start.memory_bytes), "1" if start.boxed else ""),
        *(str(start.scratch_bytes), str(start.processes_max)),
        *(str(len(part)) for part in (start.env, start.setup, start.shown, start.room)),
        str(len(start.secrets)),
    ]
    lists = (start.env, start.setup, start.shown, start.room, start.secrets, start.argv)
    texts = [*head, *(text for part in lists for text in part)]
    return frame(START, os.fsencode("\0".join(texts)))


def unpack_start(body: bytes) -> Start:
    """Return the order in the body of a frame."""
    texts = os.fsdecode(body).split("\0")
    kept, make, spare, owner, directory, cpus, memory, boxed, *counts = texts[
        :HEAD_TEXTS
    ]
    scratch, processes, *lengths = map(int, counts)
    parts: list[list[str]] = []
    begin = HEAD_TEXTS
    for length in lengths:
        parts.append(texts[begin : begin + length])
        begin += length
    env, setup, shown, room, secrets = parts
    return Start(
        *(kept, make, spare, int(owner), directory, cpus, int(memory), bool(boxed)),
        *(scratch, processes, env, setup, shown, room, secrets, texts[begin:]),
    )
