"""What a node and its wardens say to each other.

Frames on the socket are a length (4 bytes, little-endian, of what follows), a kind (1
byte) and a body. Bodies are output as it is, or fields with lengths (`fields.py`).

Wardens use this, so it may import nothing but the standard library.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from shoal.drivers.fields import Fields, FrameError, Packer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HEADER_BYTES: Final = 5
FRAME_BYTES_MAX: Final = 16 << 20
"""The arguments of a program are at most 6 MiB; no system takes more."""

START: Final = b"S"
STOP: Final = b"T"
STDOUT: Final = b"O"
STDERR: Final = b"E"
END: Final = b"X"
EXITED: Final = "exited"
NOT_STARTED: Final = "not-started"
GRACE_S_MAX: Final = 1e6
"""More than ten days; a wait of more than 24 does not fit into a call of the system."""

CPU_DIGITS_MAX: Final = 6
_GRACE: Final = struct.Struct("<d")


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
    doors: Sequence[str] = ()  # files that take a process into the group of the task
    home: Sequence[str] = ()  # and back
    folder: str = ""  # what may not grow beyond the next number
    disk_bytes: int = 0  # watched and enforced here; 0 for no limit
    keep_bytes: int = 0  # what is left free of the disk
    file_bytes: int = 0  # the most of one file; 0 for no limit
    uplink: Sequence[str] = ()  # carries what goes out of the network of the room


class Ended(NamedTuple):
    """How a run ended, as its warden says."""

    kind: str  # EXITED or NOT_STARTED
    code: int = 0
    as_new: bool = False  # whether its work directory can be that of another task
    reason: str = ""


def frame(kind: bytes, body: bytes) -> bytes:
    """Return a frame as it goes over the socket."""
    return len(body).to_bytes(4, "little") + kind + body


def take_frames(unread: bytearray) -> Iterator[tuple[bytes, bytes]]:
    """Take whole frames out of what has come; raise if one is too long."""
    while len(unread) >= HEADER_BYTES:
        size = int.from_bytes(unread[:4], "little")
        if size > FRAME_BYTES_MAX:
            raise FrameError(f"a frame of {size} bytes, and {FRAME_BYTES_MAX} may be")
        end = HEADER_BYTES + size
        if len(unread) < end:
            return
        kind, body = bytes(unread[4:HEADER_BYTES]), bytes(unread[HEADER_BYTES:end])
        del unread[:end]
        yield kind, body


def pack_start(start: Start) -> bytes:
    """Return the frame of an order; raise `FrameError` if a text cannot be in it."""
    packer = Packer()
    for name in Start._fields:
        value: str | int | Sequence[str] = getattr(start, name)
        if isinstance(value, str):
            packer.text(value)
        elif isinstance(value, int):
            packer.number(value)
        else:
            packer.texts(value)
    return frame(START, packer.body())


def unpack_start(body: bytes) -> Start:
    """Return the order in the body of a frame; raise `FrameError` if there is none."""
    fields = Fields(body)
    start = Start(
        kept=fields.text(),
        make=fields.text(),
        spare=fields.text(),
        owner=fields.number(),
        directory=fields.text(),
        cpus=fields.text(),
        memory_bytes=fields.number(),
        boxed=bool(fields.number()),
        scratch_bytes=fields.number(),
        processes_max=fields.number(),
        env=fields.texts(),
        setup=fields.texts(),
        shown=fields.texts(),
        room=fields.texts(),
        secrets=fields.texts(),
        argv=fields.texts(),
        doors=fields.texts(),
        home=fields.texts(),
        folder=fields.text(),
        disk_bytes=fields.number(),
        keep_bytes=fields.number(),
        file_bytes=fields.number(),
        uplink=fields.texts(),
    )
    fields.end()
    if not start.argv:
        raise FrameError("there is no program to run")
    if not all(map(_is_cpu, start.cpus.split(",") if start.cpus else ())):
        raise FrameError("the CPUs are no list of numbers")
    return start


def _is_cpu(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= CPU_DIGITS_MAX


def pack_stop(grace_s: float) -> bytes:
    """Return the frame of a notice to stop."""
    return frame(STOP, _GRACE.pack(min(max(0.0, grace_s), GRACE_S_MAX)))


def unpack_stop(body: bytes) -> float:
    """Return the grace in the body of a notice; raise `FrameError` if there is none."""
    if len(body) != _GRACE.size:
        raise FrameError(f"a grace of {len(body)} bytes")
    grace_s: float = _GRACE.unpack(body)[0]
    if not 0 <= grace_s <= GRACE_S_MAX:
        raise FrameError(f"a grace of {grace_s} s")
    return grace_s


def pack_end(end: Ended) -> bytes:
    """Return the frame that tells an end."""
    # An error may quote what no text of a frame can hold.
    reason = end.reason.replace("\0", " ")
    packer = Packer().text(end.kind).number(end.code).number(end.as_new)
    return frame(END, packer.text(reason).body())


def unpack_end(body: bytes) -> Ended:
    """Return the end in the body of a frame; raise `FrameError` if there is none."""
    fields = Fields(body)
    kind, code, as_new = fields.text(), fields.number(), bool(fields.number())
    end = Ended(kind, code, as_new, fields.text())
    fields.end()
    if kind not in (EXITED, NOT_STARTED):
        raise FrameError(f"an end of the kind {kind!r}")
    return end
