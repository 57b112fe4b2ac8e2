"""Whatever bytes arrive: messages within the limits, or one `ProtocolError`."""

import tracemalloc
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.property.wire_values import ANY_MESSAGE, BY_TAG
from tests.wire.examples import EXAMPLES
from tests.wire.shapes import plain_of

from shoal.errors import ProtocolError
from shoal.protocol.codec import (
    MESSAGES,
    TAGS,
    Decoder,
    Gossip,
    decode,
    decode_gossip,
    encode,
    encode_gossip,
)
from shoal.protocol.limits import BATCH_BYTES_MAX, FRAME_BYTES_MAX, GOSSIP_BYTES_MAX
from shoal.protocol.messages import AnyMessage

pack = msgspec.msgpack.encode


def fault(decode_as: Callable[[bytes], object], frame: bytes) -> ProtocolError | None:
    """Return our error, if there is one; any other exception fails the test."""
    try:
        decode_as(frame)
    except ProtocolError as error:
        return error
    return None


def check_decoding(frame: bytes) -> None:
    """Whatever the bytes are: messages, or one error of a known kind, counted once."""
    decoder = Decoder()
    ours = fault(decoder.decode, frame)
    if ours is None:
        assert all(type(message) in MESSAGES for message in decode(frame))
    else:
        assert decoder.errors == {ours.kind: 1}
    for error in (ours, fault(decode_gossip, frame)):
        if error is not None:
            assert error.kind in ("malformed", "oversized", "unknown-tag")
            assert len(str(error)) < 400


@pytest.mark.parametrize("tag", sorted(TAGS))
def test_a_message_survives_the_wire(tag: str) -> None:
    @settings(max_examples=25)
    @given(BY_TAG[tag])
    def survives(message: AnyMessage) -> None:
        [frame] = encode([message])

        assert decode(frame) == (message,)

    survives()


@given(st.lists(ANY_MESSAGE, max_size=8))
def test_messages_arrive_in_order(messages: list[AnyMessage]) -> None:
    frames = encode(messages)

    assert [one for frame in frames for one in decode(frame)] == messages


@given(
    st.one_of([BY_TAG[tag] for tag in ("announcement", "load-digest", "revocation")])
)
def test_gossip_survives_the_wire(message: Gossip) -> None:
    assert decode_gossip(encode_gossip(message)) == message


@given(st.lists(st.sampled_from(sorted(EXAMPLES)), min_size=1, max_size=300))
@settings(max_examples=30)
def test_no_frame_is_larger_than_needed_or_allowed(names: list[str]) -> None:
    messages = [EXAMPLES[name] for name in names]

    frames = encode(messages)

    assert [one for frame in frames for one in decode(frame)] == messages
    assert all(len(frame) <= BATCH_BYTES_MAX for frame in frames)
    for one, following in pairwise(frames):
        first = encode(decode(following)[:1])[0]
        assert len(one) + len(first) > BATCH_BYTES_MAX - 8


@given(st.binary(max_size=200))
@settings(max_examples=300)
def test_random_bytes_are_survived(frame: bytes) -> None:
    check_decoding(frame)


GOOD_FRAMES = st.lists(st.sampled_from(sorted(EXAMPLES)), min_size=1, max_size=3).map(
    lambda names: encode([EXAMPLES[name] for name in names])[0]
)


@given(GOOD_FRAMES, st.data())
def test_truncated_frames_are_refused(frame: bytes, data: st.DataObject) -> None:
    cut = frame[: data.draw(st.integers(0, len(frame) - 1))]

    with pytest.raises(ProtocolError):
        decode(cut)


@given(GOOD_FRAMES, st.data())
@settings(max_examples=300)
def test_flipped_bits_are_survived(frame: bytes, data: st.DataObject) -> None:
    flipped = bytearray(frame)
    for _ in range(data.draw(st.integers(1, 4))):
        bit = data.draw(st.integers(0, len(frame) * 8 - 1))
        flipped[bit // 8] ^= 1 << bit % 8

    check_decoding(bytes(flipped))


PLAIN: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(st.sampled_from(sorted(EXAMPLES)), st.data())
@settings(max_examples=300)
def test_fields_of_any_type_are_survived(name: str, data: st.DataObject) -> None:
    plain = plain_of(EXAMPLES[name])
    field = data.draw(st.sampled_from(sorted(plain)))

    check_decoding(pack([{**plain, field: data.draw(PLAIN)}]))


@given(PLAIN)
def test_any_well_formed_value_is_survived(value: Any) -> None:  # noqa: ANN401
    check_decoding(pack(value))
    check_decoding(pack([value]))


@given(
    st.sampled_from([b"\x91", b"\x81\xa1a", b"\xdc\x00\x01", b"\xdd\x00\x00\x00\x01"]),
    st.integers(0, 5_000) | st.integers(20_000, 200_000),
    st.sampled_from([b"", pack([{"type": "goodbye", "later": None}])[:-1]]),
)
@example(b"\x91", 1_000_000, b"")
@settings(max_examples=50)
def test_deep_nesting_is_survived(opening: bytes, depth: int, before: bytes) -> None:
    check_decoding(before + opening * depth + b"\xc0")


def nested_grants(depth: int) -> bytes:
    grant: Any = None
    for _ in range(depth + 1):
        grant = {
            "node": "n",
            "shoal": "s",
            "roles": [],
            "owner": "o",
            "delegation": grant,
        }
    return pack([{"type": "hello", "grant": grant}])


@pytest.mark.parametrize("depth", [4, 100, 450])
def test_a_long_chain_of_delegations_is_refused(depth: int) -> None:
    with pytest.raises(ProtocolError):
        decode(nested_grants(depth))


def test_a_short_chain_of_delegations_is_not() -> None:
    assert len(decode(nested_grants(3))) == 1


HEADERS_WITHOUT_A_BODY = [
    b"\xdd\xff\xff\xff\xff",
    b"\xdf\xff\xff\xff\xff",
    b"\xdb\xff\xff\xff\xff",
    b"\xc6\xff\xff\xff\xff",
    b"\xc9\xff\xff\xff\xff\x01",
]


def field_of_renewed(body: bytes) -> bytes:
    return b"\x91\x82" + pack("type") + pack("renewed") + pack("leases") + body


def field_of_progress(body: bytes) -> bytes:
    return b"\x91\x82" + pack("type") + pack("progress") + pack("metrics") + body


def unknown_field(body: bytes) -> bytes:
    return b"\x91\x82" + pack("type") + pack("goodbye") + pack("later") + body


@pytest.mark.parametrize("header", HEADERS_WITHOUT_A_BODY)
@pytest.mark.parametrize(
    "wrapped", [bytes, field_of_renewed, field_of_progress, unknown_field]
)
def test_a_huge_count_costs_nothing(
    header: bytes, wrapped: Callable[[bytes], bytes]
) -> None:
    frame = wrapped(header)

    assert peak_bytes(frame) < 100_000


FULL_FRAMES = {
    "empty strings": field_of_renewed(
        b"\xdd\x00\x0f\xff\xd0" + b"\xa0" * (FRAME_BYTES_MAX - 48)
    ),
    "lists of small structs": pack(
        [{"type": "renewed", "leases": [[""]] * 4_096}] * 120,
    ),
    "small messages": pack([{"type": "goodbye"}] * 1_024),
    "too many messages": pack([{"type": "goodbye"}] * 60_000),
    "newer messages": pack([{"type": ""}] * 1_024),
    "one long tag": pack([{"type": "x" * (FRAME_BYTES_MAX - 20)}]),
    "keys": pack([{"type": "goodbye", **{f"{n:x}": 0 for n in range(150_000)}}]),
}


@pytest.mark.parametrize("name", FULL_FRAMES)
def test_the_memory_that_a_frame_takes_is_bounded(name: str) -> None:
    frame = FULL_FRAMES[name]

    assert len(frame) <= FRAME_BYTES_MAX
    assert peak_bytes(frame) < 64 << 20


def peak_bytes(frame: bytes) -> int:
    tracemalloc.start()
    try:
        check_decoding(frame)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("extra", [1, 1_000_000])
def test_what_is_too_large_is_not_even_looked_at(extra: int) -> None:
    decoder = Decoder()

    with pytest.raises(ProtocolError, match="1048576 bytes are the most") as frame:
        decoder.decode(b"\x90" * (FRAME_BYTES_MAX + extra))
    with pytest.raises(ProtocolError, match="16384 bytes are the most") as gossip:
        decode_gossip(b"\x80" * (GOSSIP_BYTES_MAX + extra))

    assert frame.value.kind == gossip.value.kind == "oversized"
    assert decoder.errors == {"oversized": 1}
