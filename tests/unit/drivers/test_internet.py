"""What a task with the internet is kept from."""

import ipaddress

import pytest

from shoal.drivers.sandbox import internet

FIB = """Local:
  +-- 0.0.0.0/0 3 0 5
     |-- 10.77.0.2
        /32 host LOCAL
     |-- 10.77.0.255
        /32 link BROADCAST
     |-- 127.0.0.1
        /32 host LOCAL
     |-- 203.0.113.77
        /32 host LOCAL
"""


def test_the_addresses_of_the_machine_are_found() -> None:
    assert internet.own_addresses(FIB) == ("10.77.0.2", "203.0.113.77")


@pytest.mark.parametrize(
    "address",
    [
        *("10.1.2.3", "172.31.0.1", "192.168.1.1", "100.100.1.1", "169.254.169.254"),
        *("224.0.0.251", "239.255.255.250", "255.255.255.255", "0.0.0.0"),
    ],
)
def test_no_address_of_a_private_network_is_open(address: str) -> None:
    closed = map(ipaddress.ip_network, internet.CLOSED)

    assert any(ipaddress.ip_address(address) in network for network in closed)
