import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import ProtocolError
from shoal.net.direct.frames import (
    Frame,
    FrameKind,
    FrameReader,
    closing,
    framed,
    reason_of,
)
from shoal.protocol.limits import FRAME_BYTES_MAX

FRAMES = st.lists(
    st.builds(Frame, st.sampled_from(FrameKind), st.binary(max_size=300)), max_size=20
)


@given(FRAMES, st.lists(st.integers(1, 40), min_size=1))
def test_frames_arrive_whole_however_the_stream_is_cut(
    frames: list[Frame], cuts: list[int]
) -> None:
    stream = b"".join(framed(*frame) for frame in frames)
    reader = FrameReader()
    arrived: list[Frame] = []

    turn = 0
    while stream:
        size = cuts[turn % len(cuts)]
        arrived += reader.feed(stream[:size])
        stream = stream[size:]
        turn += 1

    assert arrived == frames


@given(st.binary(max_size=200))
def test_any_bytes_are_frames_or_a_protocol_error(data: bytes) -> None:
    try:
        frames = list(FrameReader(64).feed(data))
    except ProtocolError:
        return
    assert sum(len(frame.payload) + 4 for frame in frames) <= len(data)


def test_a_large_frame_is_refused_by_its_header_alone() -> None:
    header = framed(FrameKind.MESSAGES, bytes(65))[:4]

    with pytest.raises(ProtocolError, match="65 bytes: 64 bytes are the most"):
        list(FrameReader(64).feed(header))


def test_a_control_frame_is_small_whatever_messages_may_be() -> None:
    with pytest.raises(ProtocolError, match="1024 bytes are the most"):
        list(FrameReader(FRAME_BYTES_MAX).feed(framed(FrameKind.PING, bytes(1_025))))


def test_a_kind_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ProtocolError, match="unknown kind 6"):
        list(FrameReader().feed(b"\x06\x00\x00\x00"))


def test_a_header_has_the_kind_and_the_length() -> None:
    assert framed(FrameKind.PING, b"12345678") == b"\x01\x00\x00\x0812345678"
    assert framed(FrameKind.SELECT) == b"\x03\x00\x00\x00"


def test_the_reason_of_a_peer_is_made_fit_for_a_log() -> None:
    [frame] = FrameReader().feed(closing("grant expired\n\x1b[31m" + "x" * 2_000))

    assert reason_of(frame.payload).startswith("grant expired??[31mxxx")
    assert len(reason_of(frame.payload)) == 250
    assert reason_of(b"\xff\xfe") == "��"


def test_a_limit_that_rises_holds_for_the_next_frame() -> None:
    reader = FrameReader(8)
    frames = reader.feed(
        framed(FrameKind.MESSAGES, b"hello") + framed(FrameKind(0), bytes(99))
    )

    assert next(frames).payload == b"hello"
    reader.bytes_max = 100

    assert next(frames).payload == bytes(99)
