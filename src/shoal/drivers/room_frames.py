"""What a warden and the keeper of its sandbox say to each other.

Each packet on their line is one message, with fields that have lengths (`fields.py`).
The warden sends entries, with files beside them, and single bytes: a notice, or an
order to kill. The keeper answers with a kind (1 byte), a number and a text.

Wardens use this, so it may import nothing but the standard library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from shoal.drivers.fields import Fields, FrameError, Packer

if TYPE_CHECKING:
    from collections.abc import Sequence

MESSAGE_BYTES_MAX: Final = 4 << 20
REASON_BYTES_MAX: Final = 4_096
ANSWER_BYTES_MAX: Final = 2 * REASON_BYTES_MAX

NOTICE, KILL = b"T", b"K"
STARTED, FAILED, ENDED = b"S", b"F", b"X"


class Entry(NamedTuple):
    """One program, and what it gets inside."""

    directory: str  # its work directory, outside
    scratch_bytes: int
    processes_max: int  # 0: no limit
    shown: Sequence[str]  # folders to show inside, from those that are numbered there
    env: Sequence[str]
    argv: Sequence[str]
    file_bytes: int = 0  # the most of one file; 0: no limit


class Answer(NamedTuple):
    """What the keeper says: STARTED (a pid), FAILED (a reason) or ENDED (a code)."""

    kind: bytes
    number: int = 0
    reason: str = ""


def packed(entry: Entry) -> bytes:
    """Return an entry as it goes to the keeper."""
    packer = Packer().text(entry.directory)
    packer.number(entry.scratch_bytes).number(entry.processes_max)
    packer.texts(entry.shown).texts(entry.env).texts(entry.argv)
    packer.number(entry.file_bytes)
    return packer.body()


def unpacked(data: bytes) -> Entry:
    """Return the entry that came from the warden; raise `FrameError` if it is none."""
    fields = Fields(data)
    entry = Entry(
        directory=fields.text(),
        scratch_bytes=fields.number(),
        processes_max=fields.number(),
        shown=fields.texts(),
        env=fields.texts(),
        argv=fields.texts(),
        file_bytes=fields.number(),
    )
    fields.end()
    if not entry.argv:
        raise FrameError("there is no program to run")
    if not all("=" in text for text in entry.env):
        raise FrameError("a variable has no value")
    return entry


def pack_answer(answer: Answer) -> bytes:
    """Return an answer as it goes to the warden."""
    reason = answer.reason.replace("\0", " ")[:REASON_BYTES_MAX]
    return answer.kind + Packer().number(answer.number).text(reason).body()


def unpack_answer(data: bytes) -> Answer:
    """Return what the keeper said; raise `FrameError` if it is nothing it can say."""
    kind, fields = data[:1], Fields(data[1:])
    if kind not in (STARTED, FAILED, ENDED):
        raise FrameError(f"an answer of the kind {kind!r}")
    answer = Answer(kind, fields.number(), fields.text())
    fields.end()
    return answer
