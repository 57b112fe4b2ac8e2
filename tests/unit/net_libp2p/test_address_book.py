from tests.unit.net.shoals import identity

from shoal.net.libp2p.finding import address_book
from shoal.net.libp2p.finding.address_book import PeerAddressBook
from shoal.protocol.limits import ADDRESSES_MAX

ANN, GATE = identity(1).node, identity(2).node
PLAIN = "/ip4/192.0.2.7/tcp/4001"
THROUGH = f"{PLAIN}/p2p/{GATE}/p2p-circuit/p2p/{ANN}"


def test_the_id_at_the_end_of_an_address_is_its_peer() -> None:
    assert address_book.peer_of(f"{PLAIN}/p2p/{ANN}") == ANN
    assert address_book.bare(f"{PLAIN}/p2p/{ANN}") == PLAIN


def test_an_address_may_say_nothing_of_its_peer() -> None:
    assert address_book.peer_of(PLAIN) is None
    assert address_book.bare(PLAIN) == PLAIN


def test_an_id_that_somebody_made_up_is_no_peer() -> None:
    assert address_book.peer_of(f"{PLAIN}/p2p/nobody") is None
    assert not address_book.is_id("")


def test_addresses_of_direct_links_come_out_as_they_went_in() -> None:
    direct = "/ip4/192.0.2.7/tcp/4002"

    shown = [PLAIN, f"{address_book.shown_direct(direct)}/p2p/{ANN}", THROUGH]

    assert address_book.direct_ones(shown) == (direct,)


def test_libp2p_dials_plain_addresses_itself_and_no_others() -> None:
    assert address_book.is_plain(f"{PLAIN}/p2p/{ANN}")
    assert not address_book.is_plain(THROUGH)
    assert not address_book.is_plain(f"{address_book.shown_direct(PLAIN)}/p2p/{ANN}")


def test_an_address_through_a_gate_names_the_gate() -> None:
    address = address_book.circuit(f"{PLAIN}/p2p/{GATE}", ANN)

    assert address == THROUGH
    assert address_book.gate_of(address) == GATE
    assert address_book.gate_address(address) == f"{PLAIN}/p2p/{GATE}"
    assert address_book.peer_of(address) == ANN


def test_a_plain_address_leads_through_no_gate() -> None:
    assert address_book.gate_of(f"{PLAIN}/p2p/{ANN}") is None


def test_the_book_keeps_the_latest_addresses_first_and_only_a_few() -> None:
    known = PeerAddressBook()

    for port in range(40):
        known.add(ANN, [f"/ip4/192.0.2.7/tcp/{port}"])

    assert known.of(ANN)[0] == "/ip4/192.0.2.7/tcp/39"
    assert len(known.of(ANN)) == ADDRESSES_MAX
    assert known.of(GATE) == ()


def test_the_book_keeps_no_endless_addresses() -> None:
    known = PeerAddressBook()

    known.add(ANN, ["/dns4/" + "a" * 1_000 + "/tcp/1"])

    assert known.of(ANN) == ()
