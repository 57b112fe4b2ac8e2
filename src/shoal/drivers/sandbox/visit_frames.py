"""Messages about visits: programs and connections that join a running task.

The node sends its supervisor an order, and the supervisor passes it to the keeper of
the sandbox, or serves it itself where there is none. The answers go back the same way.
Each is one packet, with descriptors attached:

    PROGRAM   takes stdin, stdout and stderr of the new program, unless it gets a
              terminal
    PORT      asks for a connection; PORT6 for one over IPv6
    STDIN     asks for the task's own input, or its terminal
    OPENED    brings the terminal, the socket, or the task's own input
    REFUSED   says why not
    LEFT      says how a program that was opened ended

Supervisors use this, so it may import only the standard library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from shoal.drivers.supervisor.frame_fields import FrameError, FrameFields, Packer

if TYPE_CHECKING:
    from collections.abc import Sequence

MARK: Final = b"VISIT"
"""How a visit begins; an entry begins with a length, and none is that large."""

PROGRAM, PORT, PORT6, STDIN, KILL = "program", "port", "port6", "stdin", "kill"
KINDS: Final = (PROGRAM, PORT, PORT6, STDIN, KILL)
OPENED, REFUSED, LEFT = b"o", b"r", b"l"
PACKET_BYTES_MAX: Final = 1 << 20
FDS_MAX: Final = 3
NO_INPUT: Final = "the task has no standard input"
IN_SETUP: Final = "the setup of the task has not ended"
INPUT_TAKEN: Final = "the standard input of the task is in use"
REASON_BYTES_MAX: Final = 4_096


class VisitOrder(NamedTuple):
    """An order to join a running task; `KILL` ends the program of this number."""

    number: int
    kind: str
    argv: Sequence[str] = ()
    env: Sequence[str] = ()  # besides that of the task
    terminal: bool = False
    port: int = 0


class VisitAnswer(NamedTuple):
    """What became of a visit; `code` is how its program ended."""

    kind: bytes
    number: int
    code: int = 0
    reason: str = ""


def pack_visit(visit: VisitOrder) -> bytes:
    """Encode a visit."""
    packer = Packer().number(visit.number).text(visit.kind)
    packer.texts(visit.argv).texts(visit.env)
    return MARK + packer.number(visit.terminal).number(visit.port).body()


def unpack_visit(data: bytes) -> VisitOrder:
    """Decode a visit; raise `FrameError` if it is invalid."""
    fields = FrameFields(data[len(MARK) :])
    visit = VisitOrder(
        number=fields.number(),
        kind=fields.text(),
        argv=fields.texts(),
        env=fields.texts(),
        terminal=bool(fields.number()),
        port=fields.number(),
    )
    fields.end()
    if not data.startswith(MARK) or visit.kind not in KINDS:
        raise FrameError(f"a visit of the kind {visit.kind!r}")
    if visit.kind == PROGRAM and not visit.argv:
        raise FrameError("there is no program to run")
    return visit


def pack_visit_answer(answer: VisitAnswer) -> bytes:
    """Encode an answer."""
    reason = answer.reason.replace("\0", " ")[:REASON_BYTES_MAX]
    packer = Packer().number(answer.number).number(answer.code).text(reason)
    return answer.kind + packer.body()


def unpack_visit_answer(data: bytes) -> VisitAnswer:
    """Decode an answer; raise `FrameError` if it is invalid."""
    kind, fields = data[:1], FrameFields(data[1:])
    if kind not in (OPENED, REFUSED, LEFT):
        raise FrameError(f"an answer of the kind {kind!r}")
    answer = VisitAnswer(kind, fields.number(), fields.number(), fields.text())
    fields.end()
    return answer
