"""Frames on local sockets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.framing import LENGTH, FrameBuffer, FramingError, framed


@given(st.lists(st.binary(max_size=50)), st.lists(st.integers(1, 20), min_size=1))
def test_frames_come_out_as_they_went_in_however_the_socket_cuts_them(
    bodies: list[bytes], sizes: list[int]
) -> None:
    data, buffer, found = framed(*bodies), FrameBuffer(50), list[bytes]()
    at = 0
    while at < len(data):
        size = sizes[at % len(sizes)]
        found += buffer.feed(data[at : at + size])
        at += size

    assert found == bodies


@pytest.mark.parametrize("size", [0, 1, 11, 1 << 31])
def test_a_frame_of_a_wrong_size_is_refused_before_it_has_come(size: int) -> None:
    with pytest.raises(FramingError, match=f"{size} bytes"):
        FrameBuffer(10, bytes_min=2).feed(LENGTH.pack(size))


def test_frames_at_both_limits_are_taken() -> None:
    assert FrameBuffer(3, bytes_min=1).feed(framed(b"a", b"abc")) == [b"a", b"abc"]
