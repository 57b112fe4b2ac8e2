"""A gang meets where its first task says, over the way that leads there."""

from pathlib import Path

import pytest

from shoal.errors import UsageError
from shoal.interfaces import address_towards, transport_variables
from shoal.train.exchange import FolderExchange
from shoal.train.gangs import rendezvous
from shoal.train.gangs.reachability import ReachabilityDoor

ADDRESS = "127.0.0.1"


def test_others_find_the_place_that_the_first_chose(tmp_path: Path) -> None:
    first = FolderExchange(tmp_path, "main.0")
    other = FolderExchange(tmp_path, "main.1")
    place = rendezvous.RendezvousPlace("10.0.0.7", 4_000, 4_001)
    host = rendezvous.RendezvousHost(first, place)

    found = rendezvous.find(other, "main.0")

    host.close()
    assert found == place


def test_first_and_other_dial_each_other(tmp_path: Path) -> None:
    first = FolderExchange(tmp_path, "main.0")
    other = FolderExchange(tmp_path, "main.1")
    with ReachabilityDoor("main.0") as there, ReachabilityDoor("main.1") as here:
        place = rendezvous.RendezvousPlace(ADDRESS, 4_000, there.port)
        host = rendezvous.RendezvousHost(first, place)

        rendezvous.check(other, "main.0", place, ADDRESS, here.port)

        host.close()


def test_who_cannot_dial_the_first_is_told_what_to_do(tmp_path: Path) -> None:
    other = FolderExchange(tmp_path, "main.1")
    place = rendezvous.RendezvousPlace(ADDRESS, 4_000, rendezvous.free_port(ADDRESS))

    with pytest.raises(UsageError, match=r"main\.1 cannot dial main\.0") as caught:
        rendezvous.check(other, "main.0", place, ADDRESS, 4_001)

    assert "refused" in str(caught.value)
    assert "diloco" in caught.value.hint


def test_who_cannot_be_dialled_back_is_told_so(tmp_path: Path) -> None:
    first = FolderExchange(tmp_path, "main.0")
    other = FolderExchange(tmp_path, "main.1")
    with ReachabilityDoor("main.0") as there, ReachabilityDoor("somebody") as here:
        place = rendezvous.RendezvousPlace(ADDRESS, 4_000, there.port)
        host = rendezvous.RendezvousHost(first, place)

        with pytest.raises(UsageError, match=r"main\.0 cannot dial main\.1") as caught:
            rendezvous.check(other, "main.0", place, ADDRESS, here.port)

        host.close()
    assert "somebody else answers" in str(caught.value)


def test_each_rank_knows_its_own_address() -> None:
    around = {"NODE_IPS": "10.0.0.1\n10.0.0.2", "NODE_RANK": "1"}

    assert rendezvous.own_address(around) == "10.0.0.2"
    assert rendezvous.own_address({}) == address_towards()
    assert address_towards(ADDRESS) == ADDRESS


def test_transports_use_the_interface_of_the_address() -> None:
    assert transport_variables("127.0.0.1")["GLOO_SOCKET_IFNAME"] == "lo"
    assert transport_variables("203.0.113.9") == {}
