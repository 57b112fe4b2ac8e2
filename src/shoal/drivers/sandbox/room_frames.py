"""Messages between a supervisor and the keeper and the furnisher of its sandbox.

Each packet on their sockets is a message of length-prefixed fields (`frame_fields.py`).
The supervisor sends furnishings to the one, and to the other entries, with descriptors
attached, and single bytes: NOTICE or KILL. Both answer with a kind (1 byte), a number
and a text.

Supervisors use this, so it may import only the standard library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from shoal.drivers.supervisor.frame_fields import (
    FrameError,
    FrameFields,
    FrameLayout,
    Packer,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

MESSAGE_BYTES_MAX: Final = 4 << 20
REASON_BYTES_MAX: Final = 4_096
ANSWER_BYTES_MAX: Final = 2 * REASON_BYTES_MAX

NOTICE, KILL = b"T", b"K"
STARTED, FAILED, ENDED = b"S", b"F", b"X"


class Furnishing(NamedTuple):
    """The folders that a task has for itself."""

    directory: str  # the work directory, as seen outside
    scratch_bytes: int  # the size of its `/tmp`, and of its `/dev/shm`
    shown: Sequence[str] = ()  # where to mount the folders numbered in SHOWN


NOTHING: Final = Furnishing("", 0)
"""Folders in memory are unmounted, and no others mounted."""


class RoomEntry(NamedTuple):
    """A program to start in a sandbox, with its limits."""

    processes_max: int  # 0: no limit
    env: Sequence[str]
    argv: Sequence[str]
    file_bytes: int = 0  # size limit of one file; 0: no limit
    terminal: bool = False  # its files are a terminal, whose other side is answered
    spare_cpu: bool = False  # it runs only when nothing else wants the CPU


class RoomAnswer(NamedTuple):
    """An answer: STARTED (pid), FAILED (reason) or ENDED (exit code).

    An end with a reason was the last one in this sandbox: no other task may enter it.
    A furnisher says STARTED when the folders are there.
    """

    kind: bytes
    number: int = 0
    reason: str = ""


_ENTRY: Final = FrameLayout(
    RoomEntry._fields,
    numbers=("processes_max", "file_bytes"),
    flags=("terminal", "spare_cpu"),
)


def packed(entry: RoomEntry) -> bytes:
    """Encode an entry for the keeper."""
    return _ENTRY.pack(entry)


def unpacked(data: bytes) -> RoomEntry:
    """Decode an entry; raise `FrameError` if it is invalid."""
    entry = RoomEntry._make(_ENTRY.unpack(data))
    if not entry.argv:
        raise FrameError("there is no program to run")
    if not all("=" in text for text in entry.env):
        raise FrameError("a variable has no value")
    return entry


def pack_furnishing(wanted: Furnishing) -> bytes:
    """Encode for the furnisher what a task needs."""
    packer = Packer().text(wanted.directory).number(wanted.scratch_bytes)
    return packer.texts(wanted.shown).body()


def unpack_furnishing(data: bytes) -> Furnishing:
    """Decode what a task needs; raise `FrameError` if it is invalid."""
    fields = FrameFields(data)
    wanted = Furnishing(fields.text(), fields.number(), tuple(fields.texts()))
    fields.end()
    return wanted


def pack_answer(answer: RoomAnswer) -> bytes:
    """Encode an answer for the supervisor."""
    reason = answer.reason.replace("\0", " ")[:REASON_BYTES_MAX]
    return answer.kind + Packer().number(answer.number).text(reason).body()


def unpack_answer(data: bytes) -> RoomAnswer:
    """Decode an answer; raise `FrameError` if it is invalid."""
    kind, fields = data[:1], FrameFields(data[1:])
    if kind not in (STARTED, FAILED, ENDED):
        raise FrameError(f"an answer of the kind {kind!r}")
    answer = RoomAnswer(kind, fields.number(), fields.text())
    fields.end()
    return answer
