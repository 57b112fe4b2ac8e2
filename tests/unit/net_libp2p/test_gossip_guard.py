import pytest
from tests.unit.net.shoals import identity

from shoal.net.libp2p.finding import gossip_guard as limits
from shoal.net.libp2p.finding.gossip_guard import (
    Bucket,
    GossipGuard,
    Latest,
    SeenGossip,
)
from shoal.protocol.codec import encode_gossip
from shoal.protocol.limits import GOSSIP_BYTES_MAX
from shoal.protocol.messages import Announcement

ANN, BOB, EVE = (identity(number).node for number in (1, 2, 3))
DATA = encode_gossip(Announcement(scheduler=ANN))


def test_a_good_message_is_read() -> None:
    guard = GossipGuard(0.0)

    message = guard.read(BOB, ANN, 1, DATA, 0.0)

    assert message == Announcement(scheduler=ANN)
    assert not guard.counts


def test_the_same_number_of_one_origin_is_read_once() -> None:
    guard = GossipGuard(0.0)
    guard.read(BOB, ANN, 7, DATA, 0.0)

    again = guard.read(EVE, ANN, 7, DATA, 300.0)

    assert again is None
    assert guard.counts == {"replayed": 1}


def test_two_origins_may_use_the_same_number() -> None:
    guard = GossipGuard(0.0)

    assert guard.read(BOB, ANN, 7, DATA, 0.0)
    assert guard.read(BOB, EVE, 7, DATA, 0.0)


def test_an_origin_that_becomes_a_member_cannot_be_replayed() -> None:
    guard = GossipGuard(0.0)
    guard.read(BOB, ANN, 7, DATA, 0.0)

    guard.trust(ANN, 1.0)

    assert guard.read(BOB, ANN, 7, DATA, 2.0) is None


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x80", DATA[:-1]])
def test_bytes_that_are_no_gossip_are_refused(data: bytes) -> None:
    guard = GossipGuard(0.0)

    assert guard.read(BOB, ANN, 1, data, 0.0) is None
    assert guard.counts == {"malformed": 1}


def test_gossip_of_a_newer_kind_is_nobodys_fault() -> None:
    guard = GossipGuard(0.0)

    for number in range(100):
        guard.read(BOB, ANN, number, b"\x81\xa4type\xa6future", 0.0)

    assert not guard.is_banned(BOB, 0.0)
    assert guard.counts == {"unknown-tag": 100}


def test_what_is_too_large_is_refused_before_its_signature_is_checked() -> None:
    guard = GossipGuard(0.0)

    assert not guard.passes(BOB, GOSSIP_BYTES_MAX + 1, 0.0)
    assert guard.counts == {"oversized": 1}


def test_a_neighbour_that_passes_on_rubbish_is_banned_for_a_while() -> None:
    guard = GossipGuard(0.0)

    for _ in range(int(limits.FAULTS_BURST) + 1):
        guard.blame(EVE, "forged", 0.0)

    assert not guard.passes(EVE, 10, 1.0)
    assert guard.passes(BOB, 10, 1.0)
    assert guard.passes(EVE, 10, limits.BAN_S + 1.0)


def test_a_neighbour_that_is_too_fast_is_held_back() -> None:
    guard = GossipGuard(0.0)

    passed = sum(guard.passes(EVE, 10, 0.0) for _ in range(1_000))

    assert passed == limits.FORWARDER_BURST


def test_a_thousand_strangers_may_say_no_more_than_one() -> None:
    guard = GossipGuard(0.0)
    strangers = [identity(number).node for number in range(1_000, 1_300)]

    read = [guard.read(BOB, node, 1, DATA, 0.0) for node in strangers]

    assert sum(message is not None for message in read) == limits.STRANGERS_BURST


def test_strangers_do_not_use_up_the_allowance_of_a_member() -> None:
    guard = GossipGuard(0.0)
    guard.trust(ANN, 0.0)
    for number in range(500):
        guard.read(BOB, EVE, number, DATA, 0.0)

    assert guard.read(BOB, ANN, 1, DATA, 0.0)


def test_a_member_has_an_allowance_that_grows_back() -> None:
    guard = GossipGuard(0.0)
    guard.trust(ANN, 0.0)

    first = [guard.read(BOB, ANN, number, DATA, 0.0) for number in range(50)]
    later = [guard.read(BOB, ANN, 100 + number, DATA, 2.0) for number in range(50)]

    assert sum(message is not None for message in first) == limits.ORIGIN_BURST
    assert sum(message is not None for message in later) == 2 * limits.ORIGIN_PER_S


def test_a_bucket_never_holds_more_than_its_burst() -> None:
    bucket = Bucket(per_s=1.0, burst=3.0, now=0.0)

    taken = sum(bucket.take(1_000.0) for _ in range(10))

    assert taken == 3


def test_numbers_may_overtake_each_other_within_the_window() -> None:
    history = SeenGossip(0.0)
    heard: list[bool] = []

    for number in (10, 8, 9, 8, 10, 11, 12 + limits.WINDOW, 12):
        heard.append(history.is_new(number, 0.0))
        if heard[-1]:
            history.note(number, 0.0)

    assert heard == [True, True, True, False, False, True, True, False]


def test_an_origin_whose_clock_went_back_is_heard_again_after_a_silence() -> None:
    history = SeenGossip(0.0)
    history.note(1_000_000, 0.0)

    assert not history.is_new(5, limits.FORGET_S)
    assert history.is_new(5, limits.FORGET_S + 1.0)


def test_a_table_forgets_what_was_not_used_for_longest() -> None:
    table: Latest[str, int] = Latest(2)
    table.put("a", 1)
    table.put("b", 2)
    table.get("a")

    table.put("c", 3)

    assert [key for key in "abc" if key in table] == ["a", "c"]
