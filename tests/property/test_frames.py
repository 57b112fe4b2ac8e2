"""Frames between a node, its supervisors, the keepers of sandboxes, and lanes.

Whatever bytes come, a decoder returns a message or raises its one typed error. Each
`fuzz_...` takes any bytes and raises only if that does not hold, so that an outer
runner can call it as often as it likes. `SHOAL_FUZZ_FRAMES` sets how many frames the
test of random bytes draws in all; `python -m tests.property.test_frames 1000000` too.
"""

import asyncio
import contextlib
import os
import random
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.drivers import RunOrder, Stream
from shoal.drivers.lane import ItemError, LaneProgram
from shoal.drivers.python import LaneLine
from shoal.drivers.sandbox.room_frames import (
    ENDED,
    FAILED,
    STARTED,
    Furnishing,
    RoomAnswer,
    RoomEntry,
    pack_answer,
    pack_furnishing,
    packed,
    unpack_answer,
    unpack_furnishing,
    unpacked,
)
from shoal.drivers.supervisor.frame_fields import FrameError
from shoal.drivers.supervisor.supervisor_frames import (
    END,
    EXITED,
    HEADER_BYTES,
    STDOUT,
    AttemptEnded,
    StartAttempt,
    frame,
    frame_buffer,
    frames_of,
    pack_end,
    pack_start,
    pack_stop,
    unpack_end,
    unpack_start,
    unpack_stop,
)
from shoal.drivers.supervisor.supervisors import SupervisorProcess
from shoal.framing import FramingError, framed
from shoal.protocol import call_items

if TYPE_CHECKING:
    from shoal.drivers.task_socket import TaskSocket

FRAMES = int(os.environ.get("SHOAL_FUZZ_FRAMES", "4000"))
BYTES_MAX = 200
SEED = 13

START = StartAttempt(
    kept="/k",
    make="/m",
    spare="",
    owner=-1,
    directory="/d",
    cpus="0,3",
    memory_bytes=1 << 30,
    boxed=True,
    scratch_bytes=0,
    processes_max=64,
    env=["A=1", "B=two"],
    setup=["/bin/setup"],
    shown=["/s"],
    room=["/usr/bin/bwrap", "--", "/bin/cat"],
    secrets=["s3cret"],
    doors=["/cg/slot/cgroup.procs"],
    home=["/cg/cgroup.procs"],
    uplink=["/usr/bin/slirp4netns", "eth0"],
    caches=["1048576:/caches/hf"],
    argv=["/bin/echo", "hello"],
)
ENTRY = RoomEntry(64, ["A=1"], ["/bin/true", "--", "x"])
FURNISHING = Furnishing("/tasks/x", 1 << 20, ("/s",))


# From a node to a supervisor.


def fuzz_order(data: bytes) -> None:
    with contextlib.suppress(FrameError):
        found = unpack_start(data)
        assert unpack_start(pack_start(found)[HEADER_BYTES:]) == found


def fuzz_notice(data: bytes) -> None:
    with contextlib.suppress(FrameError):
        assert 0.0 <= unpack_stop(data) < float("inf")


def fuzz_frames(data: bytes) -> None:
    with contextlib.suppress(FrameError):
        found = frames_of(frame_buffer(), data)
        taken = b"".join(frame(kind, body) for kind, body in found)
        assert data.startswith(taken)
        by_piece = frame_buffer()
        pieces = [data[at : at + 7] for at in range(0, len(data), 7)]
        assert [each for p in pieces for each in frames_of(by_piece, p)] == found


# From a supervisor to its node.


def fuzz_end(data: bytes) -> None:
    with contextlib.suppress(FrameError):
        assert unpack_end(data).kind in ("exited", "not-started")


def fuzz_supervisor(data: bytes) -> None:
    """Let a node hear this from a supervisor that runs a task and then exits."""

    async def heard() -> str:
        supervisor = SupervisorProcess(0, cast("TaskSocket", None), Path("/nowhere"))
        supervisor.connection_made(Line())
        for begin in range(0, len(data), 64):
            piece = data[begin : begin + 64]
            supervisor.get_buffer(-1)[: len(piece)] = piece
            supervisor.buffer_updated(len(piece))
        supervisor.connection_lost(None)
        return (await supervisor.run(START, take)).kind

    async def take(_stream: Stream, _offset: int, _data: bytes) -> None:
        await asyncio.sleep(0)

    kind = asyncio.run(heard())
    assert kind in ("exited", "not-started", "lost")


class Line(asyncio.Transport):
    """A transport of which nobody reads."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def set_write_buffer_limits(
        self, high: int | None = None, low: int | None = None
    ) -> None:
        pass

    def is_closing(self) -> bool:
        return self.closed

    def abort(self) -> None:
        self.closed = True


# Between a supervisor and the keeper of its sandbox.


def fuzz_furnishing(data: bytes) -> None:
    with contextlib.suppress(FrameError):
        assert pack_furnishing(unpack_furnishing(data)) == data


def fuzz_entry(data: bytes) -> None:
    with contextlib.suppress(FrameError):
        assert packed(unpacked(data)) == data


def fuzz_answer(data: bytes) -> None:
    with contextlib.suppress(FrameError):
        answer = unpack_answer(data)
        assert answer.kind in (STARTED, FAILED, ENDED)
        if len(answer.reason) < BYTES_MAX:
            assert pack_answer(answer) == data


# Between a node and a lane.


def fuzz_lane(data: bytes) -> None:
    """Let a lane be told this."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        lane = LaneProgram(theirs)
        try:
            lane._take(data)
        except (FramingError, ItemError):
            pass
        finally:
            for fd in lane._signals:
                os.close(fd)


class Desk:
    """Takes what a lane says, and believes that nodes check it."""

    def came(self, order: RunOrder, line: LaneLine) -> "Desk":
        del order, line
        return self

    def said(self, items: list[bytes]) -> None:
        for item in items:
            call_items.head(item)

    def slowed(self, *, slow: bool) -> None:
        pass

    def ended(self) -> None:
        pass


def fuzz_lane_line(data: bytes) -> None:
    """Let a node hear this from a lane, whose user can make it say anything."""

    async def heard() -> None:
        line = LaneLine(cast("RunOrder", None), Desk())
        line.connection_made(Line())
        for begin in range(0, len(data), 64):
            line.data_received(data[begin : begin + 64])
        line.connection_lost(None)

    asyncio.run(heard())


def _item(kind: int, number: int, body: bytes = b"") -> bytes:
    data = call_items.item(kind, number, body)
    return framed(data)


CALLS = (
    _item(call_items.FUNCTION, 1, b"code")
    + _item(call_items.PART, 7, b"half")
    + _item(call_items.CALL, 7, b"\1\0\0\0rest")
    + _item(call_items.RECALL, 1)
)
Fuzz = Callable[[bytes], None]
DECODERS: Sequence[tuple[Fuzz, bytes]] = (
    (fuzz_order, pack_start(START)[HEADER_BYTES:]),
    (fuzz_notice, pack_stop(2.5)[HEADER_BYTES:]),
    (fuzz_frames, pack_stop(2.5) + frame(STDOUT, b"said")),
    (
        fuzz_end,
        pack_end(AttemptEnded(EXITED, 3, as_new=True, reason="why"))[HEADER_BYTES:],
    ),
    (fuzz_supervisor, frame(STDOUT, b"said") + pack_end(AttemptEnded(EXITED, 3))),
    (fuzz_entry, packed(ENTRY)),
    (fuzz_furnishing, pack_furnishing(FURNISHING)),
    (fuzz_answer, pack_answer(RoomAnswer(STARTED, 17, "why"))),
    (fuzz_lane, CALLS),
    (fuzz_lane_line, _item(call_items.VALUE, 7, b"value")),
)
"""Each decoder, and something that it understands."""

NAMES = [fuzz.__name__ for fuzz, _ in DECODERS]


def mutated(draw: random.Random, valid: bytes) -> bytes:
    """Return random bytes, or something valid with random harm to it."""
    if draw.random() < 0.2:
        return draw.randbytes(draw.randrange(BYTES_MAX))
    data = bytearray(valid)
    for _ in range(draw.randrange(1, 4)):
        at = draw.randrange(len(data) + 1)
        match draw.randrange(4):
            case 0:
                data[at:at] = draw.randbytes(draw.randrange(9))
            case 1:
                del data[at : at + draw.randrange(9)]
            case 2:
                data[at : at + 1] = draw.choice((b"\0", b"\xff", b"\x7f", b"\x01"))
            case _:
                data[at : at + 8] = draw.randbytes(8)
    return bytes(data)


def bombard(fuzz: Fuzz, valid: bytes, count: int, seed: int = SEED) -> None:
    """Try one decoder so often; the bytes that break it are in the error."""
    draw = random.Random(seed)
    for _ in range(count):
        data = mutated(draw, valid)
        try:
            fuzz(data)
        except Exception as error:
            raise AssertionError(f"{fuzz.__name__}({data!r})") from error


@pytest.mark.parametrize(("fuzz", "valid"), DECODERS, ids=NAMES)
def test_any_bytes_are_a_message_or_one_typed_error(fuzz: Fuzz, valid: bytes) -> None:
    bombard(fuzz, valid, FRAMES // len(DECODERS))


@given(st.data())
def test_bytes_that_hypothesis_finds_are_a_message_or_one_typed_error(
    data: st.DataObject,
) -> None:
    fuzz, valid = data.draw(st.sampled_from(DECODERS))
    cut = data.draw(st.integers(0, len(valid)))

    fuzz(valid[:cut] + data.draw(st.binary(max_size=40)) + valid[cut:])


def test_what_is_valid_is_understood() -> None:
    told = unpack_end(DECODERS[NAMES.index("fuzz_end")][1])

    assert unpack_start(pack_start(START)[HEADER_BYTES:]) == START
    assert unpack_stop(pack_stop(2.5)[HEADER_BYTES:]) == 2.5
    assert told == AttemptEnded(EXITED, 3, as_new=True, reason="why")
    assert unpacked(packed(ENTRY)) == ENTRY
    assert unpack_furnishing(pack_furnishing(FURNISHING)) == FURNISHING
    assert unpack_answer(pack_answer(RoomAnswer(ENDED, 3))) == RoomAnswer(ENDED, 3)
    assert frames_of(frame_buffer(), pack_end(told))[0][0] == END


TEXTS = [name for name, value in START._asdict().items() if not isinstance(value, int)]


@pytest.mark.parametrize("field", TEXTS)
def test_no_text_of_an_order_can_hold_a_nul(field: str) -> None:
    bad: Any = "\0" if isinstance(getattr(START, field), str) else ["a\0b"]

    with pytest.raises(FrameError, match="NUL"):
        pack_start(START._replace(**{field: bad}))


def main() -> None:
    """Try all decoders, as many frames in all as the argument says."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else FRAMES
    for fuzz, valid in DECODERS:
        bombard(fuzz, valid, count // len(DECODERS), random.randrange(1 << 32))
        print(fuzz.__name__, count // len(DECODERS), "frames")  # noqa: T201


if __name__ == "__main__":
    main()
