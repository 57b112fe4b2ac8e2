"""Clusters of the replay engine: where jobs go, and that all of it comes back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shoal.lab.replay.clusters import HostSlots


def test_a_job_goes_to_the_first_host_with_room_for_all_of_it() -> None:
    hosts = HostSlots(switches=1, hosts_per_switch=3, per_host=4)

    assert hosts.take(3) == ((0, 3),)
    assert hosts.take(2) == ((1, 2),)
    assert hosts.take(1) == ((0, 1),)


def test_a_job_larger_than_a_host_gets_idle_hosts_below_one_switch() -> None:
    hosts = HostSlots(switches=2, hosts_per_switch=3, per_host=4)
    hosts.take(1)

    assert hosts.take(12) == ((3, 4), (4, 4), (5, 4))
    assert hosts.take(12) is None
    assert hosts.take(6) == ((1, 4), (0, 2))
    assert hosts.free == 24 - 1 - 12 - 6


def test_what_is_left_over_goes_to_another_host_even_a_busy_one() -> None:
    hosts = HostSlots(switches=1, hosts_per_switch=2, per_host=4)
    hosts.take(2)

    assert hosts.take(7) is None
    assert hosts.take(6) == ((1, 4), (0, 2))
    assert hosts.free == 0


@given(
    shape=st.tuples(st.integers(1, 4), st.integers(1, 5), st.integers(1, 8)),
    wanted=st.lists(st.integers(1, 40), max_size=30),
)
def test_no_slot_is_given_twice_and_all_come_back(
    shape: tuple[int, int, int], wanted: list[int]
) -> None:
    switches, per_switch, per_host = shape
    hosts = HostSlots(switches, per_switch, per_host)
    given_out = [taken for slots in wanted if (taken := hosts.take(slots))]

    used = [0] * (switches * per_switch)
    for taken in given_out:
        for host, slots in taken:
            used[host] += slots
    assert all(0 <= slots <= per_host for slots in used)
    assert hosts.free == hosts.slots - sum(used)
    for taken in given_out:
        hosts.give(taken)
    assert hosts.free == hosts.slots == switches * per_switch * per_host
    # Every host is idle again, below each of the switches.
    assert sum(hosts.take(per_switch * per_host) is not None for _ in used) == switches
