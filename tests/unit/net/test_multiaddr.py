import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import UsageError
from shoal.net.identity.identity import Identity
from shoal.net.multiaddr import Multiaddr, of_socket, parse

NODE = Identity.from_seed(bytes(32)).node


@pytest.mark.parametrize(
    "text",
    [
        "/ip4/192.0.2.7/tcp/4002",
        f"/ip4/192.0.2.7/tcp/4002/p2p/{NODE}",
        "/ip6/2001:db8::1/tcp/1",
        "/dns/gate.example.org/tcp/65535",
        f"/dns4/gate.example.org/tcp/4001/p2p/{NODE}",
        "/dns6/a/tcp/4001",
    ],
)
def test_an_address_reads_and_writes_the_same(text: str) -> None:
    assert str(parse(text)) == text


def test_an_address_says_where_and_whom() -> None:
    address = parse(f"/ip4/192.0.2.7/tcp/4002/p2p/{NODE}")

    assert address == Multiaddr("ip4", "192.0.2.7", 4002, NODE)


@pytest.mark.parametrize(
    ("text", "because"),
    [
        ("", "0 parts instead of 4 or 6"),
        ("1.2.3.4:4002", "it does not begin with '/'"),
        ("/ip4/1.2.3.4", "2 parts instead of 4 or 6"),
        ("/ip4/1.2.3.4/udp/4002", "'udp' cannot be dialled directly, only 'tcp'"),
        ("/ip4/1.2.3/tcp/4002", "'1.2.3' is not an IP address"),
        ("/ip4/::1/tcp/4002", "'::1' is not of kind ip4"),
        ("/ip6/fe80::1%eth0/tcp/4002", "'fe80::1%eth0' is not of kind ip6"),
        ("/ip5/1.2.3.4/tcp/4002", "'ip5' is not a kind of host; these are: ip4, ip6"),
        ("/dns4/a b/tcp/4002", "'a b' is not a host name"),
        ("/ip4/1.2.3.4/tcp/x", "'x' is not a port"),
        ("/ip4/1.2.3.4/tcp/0", "port 0 is not within 1 to 65535"),
        ("/ip4/1.2.3.4/tcp/99999", "port 99999 is not within 1 to 65535"),
        ("/ip4/1.2.3.4/tcp/1/ipfs/x", "'ipfs' where 'p2p' belongs"),
        ("/ip4/1.2.3.4/tcp/1/p2p/x", "1 letters instead of 52"),
        ("/ip4/" + "1" * 600, "605 letters > 512"),
    ],
)
def test_a_wrong_address_is_refused_with_the_reason(text: str, because: str) -> None:
    with pytest.raises(UsageError) as refusal:
        parse(text)

    assert refusal.value.because.startswith(because)


@given(st.text(max_size=80) | st.from_regex(r"/(ip|dns)[46]?/[^/]*/tcp/.*"))
def test_whatever_a_peer_says_is_an_address_or_a_usage_error(text: str) -> None:
    try:
        address = parse(text)
    except UsageError:
        return
    assert parse(str(address)) == address


def test_the_address_of_a_socket_has_no_zone() -> None:
    assert str(of_socket(("fe80::1%eth0", 4002))) == "/ip6/fe80::1/tcp/4002"
    assert str(of_socket(("192.0.2.7", 4002), NODE)).endswith(f"/4002/p2p/{NODE}")
