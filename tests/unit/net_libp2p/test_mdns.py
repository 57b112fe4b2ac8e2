from tests.unit.net.shoals import identity

from shoal.net.libp2p.finding.mdns import read_text_record, service_type, text_record
from shoal.protocol.limits import ADDRESSES_MAX

ADDRESS = f"/ip4/192.0.2.7/tcp/4001/p2p/{identity(1).node}"


def test_addresses_in_a_text_record_come_out_as_they_went_in() -> None:
    assert read_text_record(text_record((ADDRESS, "/ip4/1.2.3.4/tcp/5"))) == (
        ADDRESS,
        "/ip4/1.2.3.4/tcp/5",
    )


def test_an_address_too_long_for_a_record_is_left_out() -> None:
    assert text_record((ADDRESS, "/dns4/" + "a" * 300)) == text_record((ADDRESS,))


def test_whatever_the_record_is_reading_it_ends() -> None:
    assert read_text_record(b"") == ()
    assert read_text_record(b"\x00" * 10_000) == ()
    assert read_text_record(b"\xff" + b"dnsaddr=" + b"\xe9" * 20) == ()
    assert len(read_text_record(text_record((ADDRESS,)) * 100)) == ADDRESSES_MAX


def test_shoals_look_for_different_services_with_valid_names() -> None:
    name = service_type("reef").split(".")[0]

    assert service_type("reef") != service_type("bay")
    assert len(name.removeprefix("_")) <= 15
