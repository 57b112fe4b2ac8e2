import pytest

from shoal.net.direct.connection_limits import (
    ARRIVALS_BURST,
    ARRIVALS_PER_S,
    WAITING_MAX,
    WAITING_PER_ADDRESS_MAX,
    ConnectionLimits,
    origin_of,
)


def test_few_callers_are_let_stand() -> None:
    doors: ConnectionLimits[int] = ConnectionLimits()

    assert [doors.arrive(n, "192.0.2.1", now=0.0) for n in range(9)] == [[]] * 9


def test_of_too_many_from_one_address_the_oldest_goes() -> None:
    doors: ConnectionLimits[int] = ConnectionLimits()
    for n in range(WAITING_PER_ADDRESS_MAX):
        assert doors.arrive(n, "192.0.2.1", now=0.0) == []

    assert doors.arrive(1_000, "192.0.2.1", now=0.0) == [0]
    assert doors.arrive(1_001, "192.0.2.1", now=0.0) == [1]
    assert doors.arrive(1_002, "192.0.2.2", now=0.0) == []


def test_when_the_door_is_full_the_largest_crowd_loses_its_oldest() -> None:
    doors: ConnectionLimits[int] = ConnectionLimits()
    doors.arrive(-1, "198.51.100.1", now=0.0)
    for n in range(WAITING_MAX - 1):
        doors.arrive(n, "192.0.2.1" if n < 60 else f"203.0.113.{n}", now=0.0)

    assert doors.arrive(1_000, "198.51.100.2", now=0.0) == [0]
    assert len(doors) == WAITING_MAX


def test_who_left_makes_room() -> None:
    doors: ConnectionLimits[int] = ConnectionLimits()
    for n in range(WAITING_PER_ADDRESS_MAX):
        doors.arrive(n, "192.0.2.1", now=0.0)

    doors.leave(5)
    doors.leave(5)

    assert doors.arrive(1_000, "192.0.2.1", now=0.0) == []


def test_an_address_begins_only_so_many_a_second() -> None:
    doors: ConnectionLimits[int] = ConnectionLimits()
    caller = 0

    def let_in(now: float) -> bool:
        nonlocal caller
        caller += 1
        sent_away = doors.arrive(caller, "192.0.2.1", now)
        doors.leave(caller)
        return caller not in sent_away

    burst = sum(let_in(now=0.0) for _ in range(1_000))
    later = sum(let_in(now=1.0) for _ in range(1_000))

    assert burst == ARRIVALS_BURST
    assert later == ARRIVALS_PER_S


@pytest.mark.parametrize(
    ("address", "origin"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", "unknown"),
    ],
)
def test_hosts_of_one_network_of_ipv6_count_as_one(address: str, origin: str) -> None:
    assert origin_of(address) == origin
