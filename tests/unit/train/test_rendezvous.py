"""A gang meets where its first task says, over the way that leads there."""

from pathlib import Path

from shoal.train import rendezvous
from shoal.train.exchange import FolderExchange


def test_others_find_the_place_that_the_first_chose(tmp_path: Path) -> None:
    first = FolderExchange(tmp_path, "main.0")
    other = FolderExchange(tmp_path, "main.1")
    port = rendezvous.free_port("127.0.0.1")
    host = rendezvous.Host(first, "10.0.0.7", port)

    found = rendezvous.find(other, "main.0")

    host.close()
    assert found == ("10.0.0.7", port)


def test_each_rank_knows_its_own_address() -> None:
    around = {"NODE_IPS": "10.0.0.1\n10.0.0.2", "NODE_RANK": "1"}

    assert rendezvous.own_address(around) == "10.0.0.2"
    assert rendezvous.own_address({}) == "127.0.0.1"


def test_transports_use_the_interface_of_the_address() -> None:
    assert rendezvous.transport_variables("127.0.0.1")["GLOO_SOCKET_IFNAME"] == "lo"
    assert rendezvous.transport_variables("203.0.113.9") == {}
