import pytest
from tests.unit.core.pond import Pond, Server

from shoal.core.artifacts.piece_fetch import STALL_S, UNDER_WAY_MAX
from shoal.core.artifacts.piece_sources import QUEUE_S, WINDOW_MAX
from shoal.core.artifacts.tree_holders import TreeHolders
from shoal.core.events import MessageReceived, PeerConnected, PeerLost
from shoal.core.proximity.network_map import Path
from shoal.model.ids import BlobId, NodeId
from shoal.net.direct.outbox import OUTBOX_BYTES_MAX, PIECES_SHARE
from shoal.protocol.blobs import BlobPiece
from shoal.protocol.limits import PIECE_BYTES_MAX

MB = 1_000_000


def fetched(pond: Pond, blob: BlobId) -> bool:
    assert blob not in pond.failed, pond.failed
    return pond.done.get(blob) == pond.blobs[blob]


@pytest.mark.parametrize("size", [0, 1, 49_152, 49_153, 5 * MB])
def test_a_blob_arrives_as_it_was(size: int) -> None:
    pond = Pond()
    pond.server("otter")
    blob = pond.blob(size)

    pond.want(blob)
    pond.run()

    assert fetched(pond, blob)
    assert len(pond.fetching) == 0
    assert pond.machine.next_deadline() is None


def test_many_small_blobs_arrive_in_a_few_round_trips() -> None:
    pond = Pond()
    pond.server("otter", latency_s=0.02)
    blobs = [pond.blob(100 + n) for n in range(500)]

    for blob in blobs:
        pond.want(blob)
    pond.run()

    assert all(fetched(pond, blob) for blob in blobs)
    assert pond.now < 1.0  # One after another would take 20 s.


def test_all_who_have_a_blob_share_the_work() -> None:
    pond = Pond()
    servers = [pond.server(f"s{n}", bytes_s=1 * MB) for n in range(4)]
    blob = pond.blob(8 * MB)

    pond.want(blob)
    pond.run()

    assert fetched(pond, blob)
    assert all(server.sent_bytes > 1 * MB for server in servers)
    assert pond.now < 4.0  # One alone would take 8 s.


def test_a_slow_link_never_has_much_under_way() -> None:
    pond = Pond()
    slow = pond.server("slow", bytes_s=0.5 * MB)
    blob = pond.blob(10 * MB)

    pond.want(blob)
    pond.run()

    assert fetched(pond, blob)
    assert slow.queue_s_max < QUEUE_S + 0.6  # What others on the link may wait.
    assert pond.now < 21.0 * 1.1  # And yet it is used nearly all the time.


def test_a_fast_link_is_filled_although_it_is_long() -> None:
    pond = Pond()
    pond.server("far", latency_s=0.05, bytes_s=20 * MB)
    blob = pond.blob(10 * MB)

    pond.want(blob)
    pond.run()

    assert fetched(pond, blob)
    assert pond.now < 1.8  # 0.5 s, and a start in which the pace is found.


def test_a_peer_is_never_asked_for_more_than_its_outbox_keeps() -> None:
    assert WINDOW_MAX <= OUTBOX_BYTES_MAX // PIECES_SHARE


def test_what_is_not_on_disk_yet_is_never_more_than_the_limit() -> None:
    pond = Pond(write_s=0.5)
    pond.server("quick", latency_s=0.0001, bytes_s=1e9)
    blob = pond.blob(15 * MB)

    pond.want(blob)
    most = 0
    while len(pond.fetching):
        pond.run(until_s=pond.now + 0.01)
        asked = sum(len(wanted.pieces) for _, wanted in pond.asks)
        under_way = asked - len(pond.disk.get(blob, {}))
        most = max(most, under_way * PIECE_BYTES_MAX)

    assert fetched(pond, blob)
    assert most <= UNDER_WAY_MAX + PIECE_BYTES_MAX
    assert pond.fetching.sources.get(NodeId("quick")).window <= WINDOW_MAX


def test_a_liar_is_found_out_by_its_first_lie_and_asked_no_more() -> None:
    pond = Pond(seed=3)
    liar = pond.server("liar", lies=1.0)
    pond.server("otter", latency_s=0.05)
    blob = pond.blob(3 * MB)

    pond.want(blob)
    pond.run()

    assert fetched(pond, blob)
    assert pond.fetching.counts["wrong"] >= 1
    assert liar.sent_bytes <= 4 * PIECE_BYTES_MAX, "what was asked before its lie"


def test_a_blob_that_only_liars_have_is_never_accepted() -> None:
    pond = Pond()
    pond.server("liar", lies=0.3)
    blob = pond.blob(10 * MB)

    pond.want(blob)
    pond.run()

    assert blob not in pond.done
    assert "sent bytes that are not of it" in pond.failed[blob]


def test_who_lies_three_times_is_asked_for_nothing_for_a_while() -> None:
    pond = Pond()
    pond.server("liar", lies=1.0)
    for _ in range(3):
        pond.want(pond.blob(10))
        pond.run()
    before = len(pond.asks)

    pond.server("otter")
    blob = pond.blob(100)
    pond.want(blob, ["liar", "otter"])
    pond.run()

    assert fetched(pond, blob)
    assert {peer for peer, _ in pond.asks[before:]} == {"otter"}


def test_the_next_is_asked_when_one_does_not_have_it() -> None:
    pond = Pond()
    pond.server("empty", holds=False)
    pond.server("otter")
    blob = pond.blob(2 * MB)

    pond.want(blob, ["empty", "otter"])
    pond.run()

    assert fetched(pond, blob)
    assert pond.now < 1.0


def test_a_blob_that_nobody_has_fails_at_once_and_says_who_was_asked() -> None:
    pond = Pond()
    pond.server("otter", holds=False)
    pond.server("heron", holds=False)
    blob = pond.blob(10)

    pond.want(blob)
    pond.run()

    assert pond.failed[blob] == (
        "otter: it is not held here; heron: it is not held here"
    )
    assert pond.now < 1.0


def test_silence_ends_a_fetch_after_a_while() -> None:
    pond = Pond()
    pond.server("silent", loss=1.0)
    blob = pond.blob(10)

    pond.want(blob)
    pond.run()

    assert pond.failed[blob] == "silent: did not answer"
    assert STALL_S <= pond.now < STALL_S + 10
    assert len(pond.asks) > 3, "it was asked again"


def test_fetches_in_a_long_queue_do_not_give_up_while_others_get_on() -> None:
    pond = Pond()
    pond.server("slow", bytes_s=0.05 * MB)
    blobs = [pond.blob(1 * MB) for _ in range(8)]

    for blob in blobs:
        pond.want(blob)
    pond.run()

    assert all(fetched(pond, blob) for blob in blobs)
    assert pond.now > 2 * STALL_S


def test_a_link_that_broke_is_used_again_and_nothing_is_fetched_twice() -> None:
    pond = Pond()
    otter = pond.server("otter", bytes_s=2 * MB)
    blob = pond.blob(4 * MB)
    pond.want(blob)
    pond.run(until_s=1.0)

    otter.down = True
    pond.feed(PeerLost(otter.node))
    pond.after(3.0, lambda: setattr(otter, "down", False))
    pond.run()

    assert fetched(pond, blob)
    assert pond.fetching.bytes_fetched <= 4 * MB + 100_000


@pytest.mark.parametrize("is_lost_before", [False, True])
def test_who_cannot_wait_for_a_peer_that_is_gone_is_told_soon(
    is_lost_before: bool,
) -> None:
    pond = Pond()
    otter = pond.server("otter", bytes_s=2 * MB)
    pond.want(pond.blob(10))  # So that the peer is known.
    pond.run()
    blob = pond.blob(4 * MB)
    began = pond.now

    if not is_lost_before:
        pond.want(blob, lost_s=3.0)
        pond.run(until_s=began + 1.0)
    otter.down = True
    pond.feed(PeerLost(otter.node))
    lost_at = pond.now
    if is_lost_before:
        pond.want(blob, lost_s=3.0)
    pond.run()

    assert pond.failed[blob] == "otter: did not answer"
    assert lost_at + 3.0 <= pond.now < lost_at + 3.1


def test_who_cannot_wait_waits_for_a_peer_that_has_a_link_again() -> None:
    pond = Pond()
    otter = pond.server("otter", bytes_s=2 * MB)
    blob = pond.blob(4 * MB)
    pond.want(blob, lost_s=3.0)
    pond.run(until_s=1.0)

    otter.down = True
    pond.feed(PeerLost(otter.node))
    pond.after(2.0, lambda: pond.feed(PeerConnected(otter.node, None)))
    pond.after(6.0, lambda: setattr(otter, "down", False))
    pond.run()

    assert fetched(pond, blob)


def test_of_all_who_want_a_blob_the_most_patient_decides() -> None:
    pond = Pond()
    otter = pond.server("otter", bytes_s=2 * MB)
    blob = pond.blob(4 * MB)
    pond.want(blob, lost_s=3.0)
    pond.want(blob)
    pond.run(until_s=1.0)

    otter.down = True
    pond.feed(PeerLost(otter.node))
    pond.after(9.0, lambda: setattr(otter, "down", False))
    pond.run()

    assert fetched(pond, blob)


def test_one_peer_that_is_left_is_waited_for_though_another_is_gone() -> None:
    pond = Pond()
    otter, heron = pond.server("otter"), pond.server("heron")
    heron.down = True
    blob = pond.blob(4 * MB)
    pond.want(blob, lost_s=3.0)

    otter.down = True
    pond.feed(PeerLost(otter.node))
    pond.after(9.0, lambda: setattr(heron, "down", False))
    pond.run()

    assert fetched(pond, blob)


def test_what_an_earlier_life_fetched_is_not_fetched_again() -> None:
    pond = Pond()
    pond.server("otter", bytes_s=2 * MB)
    blob = pond.blob(4 * MB)
    token = pond.want(blob)
    pond.run(until_s=1.0)
    pond.drop(token)
    kept = len(pond.disk[blob]) * PIECE_BYTES_MAX

    pond.restart()
    pond.want(blob)
    pond.run()

    assert fetched(pond, blob)
    assert 1 * MB < kept < 3 * MB
    assert pond.fetching.bytes_fetched < 4 * MB - kept + 10_000


def test_those_who_are_found_later_help() -> None:
    pond = Pond()
    pond.server("slow", bytes_s=0.2 * MB)
    pond.server("quick", bytes_s=50 * MB)
    blob = pond.blob(4 * MB)
    pond.want(blob, ["slow"])
    pond.run(until_s=1.0)

    pond.want(blob, ["quick"])
    pond.run()

    assert fetched(pond, blob)
    assert pond.now < 3.0


def test_pieces_that_nobody_asked_for_change_nothing() -> None:
    pond = Pond()
    pond.server("otter")
    blob = pond.blob(100)
    piece = BlobPiece(blob=blob, level=0, index=0, data=pond.blobs[blob])

    pond.feed(MessageReceived(NodeId("stranger"), piece))
    pond.want(blob)
    pond.feed(MessageReceived(NodeId("stranger"), piece))

    assert pond.fetching.counts["unasked"] == 2
    pond.run()
    assert fetched(pond, blob)


def test_what_is_no_name_or_has_no_source_fails_at_once() -> None:
    pond = Pond()

    pond.want(BlobId("../etc/passwd"), ["otter"])
    pond.want(pond.blob(5), [])

    assert list(pond.failed.values()) == [
        "not the name of a blob",
        "nobody is known who has it",
    ]


def sites(pond: Pond) -> tuple[Server, Server]:
    """Add a holder in this site, and one at the end of a long, narrow line."""
    near = pond.server("near", bytes_s=10 * MB, latency_s=0.001)
    far = pond.server("far", bytes_s=2 * MB, latency_s=0.02)
    pond.paths = {near.node: Path(2_000, 7), far.node: Path(40_000, 5)}
    return near, far


def test_what_is_near_is_not_fetched_from_far_away() -> None:
    pond = Pond()
    near, far = sites(pond)
    blob = pond.blob(8 * MB)

    pond.want(blob, ["far", "near"])
    pond.run()

    assert fetched(pond, blob)
    assert near.sent_bytes > 8 * MB
    assert far.sent_bytes == 0


@pytest.mark.parametrize("how", ["silent", "lost", "refuses", "lies"])
def test_what_the_nearest_does_not_give_comes_from_far_away(how: str) -> None:
    pond = Pond()
    near, far = sites(pond)
    blob = pond.blob(8 * MB)
    near.holds, near.lies = how != "refuses", float(how == "lies")

    def fail() -> None:
        near.down = True
        if how == "lost":
            pond.feed(PeerLost(near.node))

    if how in ("silent", "lost"):
        pond.after(0.2, fail)
    pond.want(blob, ["far", "near"])
    pond.run()

    assert fetched(pond, blob)
    assert far.sent_bytes > 4 * MB
    assert pond.now < 30.0


def test_holders_as_near_as_each_other_and_those_nobody_measured_share_the_work() -> (
    None
):
    pond = Pond()
    near, _ = sites(pond)
    twin, new = pond.server("twin", bytes_s=8 * MB), pond.server("new", bytes_s=8 * MB)
    pond.paths[twin.node] = Path(1_000, 6)
    blob = pond.blob(16 * MB)

    pond.want(blob)
    pond.run()

    assert fetched(pond, blob)
    assert all(each.sent_bytes > 1 * MB for each in (near, twin, new))


def test_the_nearest_of_many_holders_are_named() -> None:
    nodes = [NodeId(f"w{number}") for number in range(30)]
    holders = TreeHolders(lambda node: f"at {node}", lambda one, _: Path(int(one[1:])))
    for node in nodes:
        holders.note(BlobId("tree"), node)

    named = [each.node for each in holders.besides(nodes[3], BlobId("tree"))]

    assert named == [node for node in nodes[:9] if node != nodes[3]]
