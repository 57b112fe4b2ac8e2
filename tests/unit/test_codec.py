import msgspec
import pytest

from shoal.errors import ProtocolError
from shoal.model.ids import Attempt, LeaseId, NodeId, TaskId
from shoal.model.resources import Capacity, Device
from shoal.protocol.call_batches import ResultBatch
from shoal.protocol.call_items import HEAD_BYTES
from shoal.protocol.codec import (
    Decoder,
    agree,
    decode,
    decode_gossip,
    encode,
    encode_gossip,
    encode_one,
    frames_of,
)
from shoal.protocol.limits import FRAME_BYTES_MAX, MESSAGES_MAX
from shoal.protocol.message import Message
from shoal.protocol.messages import (
    Announcement,
    Goodbye,
    Hello,
    Inventory,
    InventoryChanged,
    Load,
    LoadDigest,
    Progress,
    Release,
    Renew,
)

pack = msgspec.msgpack.encode
GOODBYE = Goodbye(reason="done")


class Newer(Message, frozen=True, tag="a-later-message"):
    """What a node of a later version may send."""

    news: str = "new"


def test_nothing_to_send_makes_no_frame() -> None:
    assert encode([]) == []


def test_messages_of_one_turn_make_one_frame() -> None:
    assert len(encode([GOODBYE] * MESSAGES_MAX)) == 1


def test_too_many_messages_for_a_frame_make_two() -> None:
    frames = encode([GOODBYE] * (MESSAGES_MAX + 1))

    assert [len(decode(frame)) for frame in frames] == [MESSAGES_MAX, 1]


def test_a_message_larger_than_a_batch_has_a_frame_of_its_own() -> None:
    large = Release(leases=tuple(LeaseId(f"{n:0100}") for n in range(2_000)))

    frames = encode([GOODBYE, large, GOODBYE])

    assert [decode(frame) for frame in frames] == [(GOODBYE,), (large,), (GOODBYE,)]


def test_a_message_larger_than_any_frame_is_not_sent() -> None:
    vast = Release(leases=(LeaseId("x" * FRAME_BYTES_MAX),))

    with pytest.raises(ProtocolError, match="1048573 bytes are the most") as refusal:
        encode([GOODBYE, vast])

    assert refusal.value.kind == "oversized"


def test_a_message_of_a_newer_node_is_left_out_and_its_neighbours_arrive() -> None:
    decoder = Decoder()

    messages = decoder.decode(pack([GOODBYE, Newer(), Hello(), Newer()]))

    assert messages == (GOODBYE, Hello())
    assert decoder.errors == {"unknown-tag": 2}


def test_a_field_of_a_newer_node_is_skipped() -> None:
    frame = pack([{"type": "goodbye", "reason": "done", "later": [1, {"a": b"b"}]}])

    assert decode(frame) == (GOODBYE,)


@pytest.mark.parametrize(
    "wrong",
    [
        {"type": "goodbye", "reason": 7},
        {"type": 7},
        {"reason": "no type"},
        ["goodbye"],
        None,
    ],
)
def test_a_wrong_message_makes_the_whole_frame_void(wrong: object) -> None:
    decoder = Decoder()

    with pytest.raises(ProtocolError, match="unreadable bytes") as refusal:
        decoder.decode(pack([GOODBYE, Newer(), wrong]))

    assert refusal.value.kind == "malformed"
    assert decoder.errors == {"malformed": 1}


def test_text_that_a_peer_chose_is_shown_in_part_and_without_control_codes() -> None:
    text = "\x1b[2J\n" + "x" * 5_000

    with pytest.raises(ProtocolError) as value:
        decode(pack([{"type": "output", "stream": text}]))
    with pytest.raises(ProtocolError) as tag:
        decode_gossip(pack({"type": text}))

    for refusal in (str(value.value), str(tag.value)):
        assert refusal.isprintable()
        assert len(refusal) < 250


def test_text_that_is_not_utf8_is_refused() -> None:
    frame = pack([GOODBYE]).replace(b"done", b"\xff\xfe\xfd\xfc")

    with pytest.raises(ProtocolError, match="unreadable bytes"):
        decode(frame)


def test_a_metric_may_be_no_number() -> None:
    attempt = Attempt(NodeId("n"), 1, 1)
    progress = Progress(attempt=attempt, seq=0, metrics={"loss": float("nan")})

    [copy] = decode(encode([progress])[0])

    assert isinstance(copy, Progress)
    assert str(copy.metrics["loss"]) == "nan"


def inventory(ids: list[str], shares: int, memories: int) -> Inventory:
    return Inventory(
        epoch=0,
        seq=0,
        capacity=Capacity(devices=tuple(Device(id_) for id_ in ids)),
        load=Load(gpu_milli=(1_000,) * shares, gpu_memory=(0,) * memories),
    )


@pytest.mark.parametrize(
    ("stated", "flaw"),
    [
        (inventory(["a", "a"], 2, 2), "2 devices, 1 different ids"),
        (inventory(["a"], 2, 2), "1 devices, load of 2"),
        (inventory(["a"], 1, 0), "1 gpu shares, 0 memories"),
    ],
)
def test_an_inventory_that_contradicts_itself_is_refused(
    stated: Inventory, flaw: str
) -> None:
    with pytest.raises(ProtocolError, match=flaw):
        decode(encode([stated])[0])


def test_a_load_that_contradicts_itself_is_refused() -> None:
    uneven = Load(gpu_milli=(1_000, 1_000), gpu_memory=(0,))

    with pytest.raises(ProtocolError, match="2 gpu shares, 1 memories"):
        decode(encode([InventoryChanged(epoch=0, seq=0, load=uneven)])[0])
    with pytest.raises(ProtocolError, match="2 gpu shares, 1 memories"):
        decode_gossip(
            pack(LoadDigest(node=NodeId("n"), epoch=0, seq=0, load=uneven)),
        )


def test_gossip_of_another_kind_is_refused() -> None:
    with pytest.raises(ProtocolError) as known:
        decode_gossip(pack(GOODBYE))
    with pytest.raises(ProtocolError, match="'a-later-message'") as unknown:
        decode_gossip(pack(Newer()))

    assert known.value.kind == "malformed"
    assert unknown.value.kind == "unknown-tag"


def test_gossip_that_is_too_large_is_not_sent() -> None:
    vast = Announcement(scheduler=NodeId("n"), addresses=("x" * 512,) * 40)

    with pytest.raises(ProtocolError, match="16384 bytes are the most") as refusal:
        encode_gossip(vast)

    assert refusal.value.kind == "oversized"


@pytest.mark.parametrize(
    ("ours", "theirs", "version"),
    [
        ((1, 1), (1, 1), 1),
        ((1, 3), (2, 5), 3),
        ((2, 5), (1, 3), 3),
        ((1, 9), (4, 4), 4),
    ],
)
def test_two_nodes_agree_on_the_highest_version_that_both_speak(
    ours: tuple[int, int], theirs: tuple[int, int], version: int
) -> None:
    assert agree(ours, theirs) == version


@pytest.mark.parametrize("theirs", [(3, 4), (0, 0), (2, 1)])
def test_two_nodes_without_a_common_version_say_both_ranges(
    theirs: tuple[int, int],
) -> None:
    refusal = agree((1, 2), theirs)

    assert isinstance(refusal, ProtocolError)
    assert refusal.kind == "version"
    assert refusal.because == (
        f"we speak 1 to 2, the peer speaks {theirs[0]} to {theirs[1]}"
    )


@pytest.mark.parametrize("count", [1, 15, 16, 1_024, 1_025, 3_000])
def test_messages_encoded_one_by_one_make_the_same_frames(count: int) -> None:
    messages = [Renew(leases=(), lease_s=float(n)) for n in range(count)]

    packed = frames_of([encode_one(message) for message in messages])

    assert packed == encode(messages)
    assert [m for frame in packed for m in decode(frame)] == messages


def test_no_messages_are_packed_into_no_frame() -> None:
    assert frames_of([]) == []


def test_an_item_of_a_lane_without_its_head_is_no_message() -> None:
    attempt = Attempt(NodeId("s"), 1, 1)
    for items in ((b"",), (b"\7",), (bytes(HEAD_BYTES), b"12345678")):
        batch = ResultBatch(
            task=TaskId("t"), attempt=attempt, first=0, taken=0, items=items
        )

        with pytest.raises(ProtocolError):
            decode(encode_one(batch))
