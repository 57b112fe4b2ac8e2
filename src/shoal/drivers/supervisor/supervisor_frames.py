"""Messages between a node and its supervisors.

The node sends START and STOP; the supervisor sends STDOUT and STDERR, then one END for
each START. Each frame (`shoal/framing.py`) is a kind (1 byte) and a body: raw output,
or length-prefixed fields (`frame_fields.py`).

Supervisors use this, so it may import only the standard library.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from shoal.drivers.supervisor.frame_fields import (
    FrameError,
    FrameFields,
    FrameLayout,
    Packer,
)
from shoal.framing import LENGTH, FrameBuffer, FramingError, framed

if TYPE_CHECKING:
    from collections.abc import Sequence

HEADER_BYTES: Final = LENGTH.size + 1
FRAME_BYTES_MAX: Final = 16 << 20
"""Enough for the arguments of a program, which no system lets exceed 6 MiB."""

START: Final = b"S"
STOP: Final = b"T"
STDOUT: Final = b"O"
STDERR: Final = b"E"
END: Final = b"X"
EXITED: Final = "exited"
PIPE, TERMINAL = "pipe", "terminal"
STDINS: Final = ("none", PIPE, TERMINAL)
NOT_STARTED: Final = "not-started"
GRACE_S_MAX: Final = 1e6
"""More than ten days; `poll` cannot wait for more than 24."""

CPU_DIGITS_MAX: Final = 6
_GRACE: Final = struct.Struct("<d")


class StartAttempt(NamedTuple):
    """An order to run an attempt; programs without a slash are found by PATH."""

    kept: str  # path prefix of kept output
    make: str  # a work directory to make; empty if it exists
    spare: str  # an empty work directory to rename instead
    owner: int  # uid of that directory; -1 for ours
    directory: str  # where the programs start
    cpus: str  # such as "0,3"; empty for all
    memory_bytes: int  # watched and enforced here; 0 for no limit
    boxed: bool  # runs in its own pid namespace, which gets SIGTERM
    scratch_bytes: int  # limit of /tmp and /dev/shm in a room
    processes_max: int  # limit in a room; 0 for none
    env: Sequence[str]
    setup: Sequence[str]
    shown: Sequence[str]  # see `RoomEntry`
    room: Sequence[str]  # command that builds a reusable sandbox; empty: none
    secrets: Sequence[str]  # replaced by stars in kept output
    argv: Sequence[str]
    doors: Sequence[str] = ()  # files to enter the task's cgroups
    home: Sequence[str] = ()  # and of the node's
    folder: str = ""  # the folder that `disk_bytes` limits
    disk_bytes: int = 0  # watched and enforced here; 0 for no limit
    keep_bytes: int = 0  # space to keep free on the disk
    file_bytes: int = 0  # size limit of one file; 0 for none
    uplink: Sequence[str] = ()  # command that connects the room's network
    caches: Sequence[str] = ()  # `BYTES:FOLDER` of other folders that are limited
    stdin: str = "none"  # or "pipe" or "terminal", which a visit can take
    spare_cpu: bool = False  # it runs only when nothing else wants the CPU
    job: str = ""  # what is as new may go from one task of it to the next


_START: Final = FrameLayout(
    StartAttempt._fields,
    texts=["kept", "make", "spare", "directory", "cpus", "folder", "stdin", "job"],
    numbers=[
        "owner",
        "memory_bytes",
        "scratch_bytes",
        "processes_max",
        "disk_bytes",
        "keep_bytes",
        "file_bytes",
    ],
    flags=("boxed", "spare_cpu"),
)


class AttemptEnded(NamedTuple):
    """How a run ended, as reported by its supervisor."""

    kind: str  # EXITED or NOT_STARTED
    code: int = 0
    as_new: bool = False  # whether its work directory can be reused
    reason: str = ""
    memory_bytes: int = 0  # the most that it took at once; 0 if it ended before a look


def frame(kind: bytes, body: bytes) -> bytes:
    """Encode a frame for the socket."""
    return framed(kind + body)


def frame_buffer() -> FrameBuffer:
    """Return a buffer that splits the stream into frames."""
    return FrameBuffer(FRAME_BYTES_MAX, bytes_min=1)


def frames_of(
    buffer: FrameBuffer, data: bytes | memoryview
) -> list[tuple[bytes, bytes]]:
    """Return kind and body of each complete frame; raise `FrameError` if invalid."""
    try:
        return [(body[:1], body[1:]) for body in buffer.feed(data)]
    except FramingError as error:
        raise FrameError(str(error)) from None


def pack_start(start: StartAttempt) -> bytes:
    """Encode an order as a frame; raise `FrameError` if a text cannot be sent."""
    return frame(START, _START.pack(start))


def unpack_start(body: bytes) -> StartAttempt:
    """Decode an order; raise `FrameError` if it is invalid."""
    start = StartAttempt._make(_START.unpack(body))
    if not start.argv:
        raise FrameError("there is no program to run")
    if start.stdin not in STDINS:
        raise FrameError(f"a standard input of the kind {start.stdin!r}")
    if not all(map(_is_cpu, start.cpus.split(",") if start.cpus else ())):
        raise FrameError("the CPUs are no list of numbers")
    if not all(each.partition(":")[0].isdecimal() for each in start.caches):
        raise FrameError("a cache has no size")
    return start


def _is_cpu(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= CPU_DIGITS_MAX


def pack_stop(grace_s: float) -> bytes:
    """Encode a notice to stop as a frame."""
    return frame(STOP, _GRACE.pack(min(max(0.0, grace_s), GRACE_S_MAX)))


def unpack_stop(body: bytes) -> float:
    """Decode the grace of a notice to stop; raise `FrameError` if it is invalid."""
    if len(body) != _GRACE.size:
        raise FrameError(f"a grace of {len(body)} bytes")
    grace_s: float = _GRACE.unpack(body)[0]
    if not 0 <= grace_s <= GRACE_S_MAX:
        raise FrameError(f"a grace of {grace_s} s")
    return grace_s


def pack_end(end: AttemptEnded) -> bytes:
    """Encode the report of an end as a frame."""
    # An error may quote a NUL, which no text may contain.
    reason = end.reason.replace("\0", " ")
    packer = Packer().text(end.kind).number(end.code).number(end.as_new)
    return frame(END, packer.text(reason).number(end.memory_bytes).body())


def unpack_end(body: bytes) -> AttemptEnded:
    """Decode the report of an end; raise `FrameError` if it is invalid."""
    fields = FrameFields(body)
    kind, code, as_new = fields.text(), fields.number(), bool(fields.number())
    end = AttemptEnded(kind, code, as_new, fields.text(), fields.number())
    fields.end()
    if kind not in (EXITED, NOT_STARTED):
        raise FrameError(f"an end of the kind {kind!r}")
    return end
