"""What a gate relays at most is read from a line."""

import pytest

from shoal.errors import UsageError
from shoal.net.libp2p.settings import RelayRoom
from shoal.runtime.discovery.relay_limits import EXAMPLE, relay_room


def test_what_is_not_said_stays_as_it_is() -> None:
    assert relay_room("") == RelayRoom()
    assert relay_room("time=5s") == RelayRoom(circuit_s=5)


def test_all_of_it_can_be_said() -> None:
    room = relay_room("members=2,circuits=3,bytes=1MiB,time=1m")

    assert room == RelayRoom(members=2, circuits=3, circuit_bytes=1 << 20, circuit_s=60)
    assert relay_room(EXAMPLE).members == RelayRoom().members


@pytest.mark.parametrize("text", ["members", "speed=3", "members=0", "time=0s", "x"])
def test_what_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        relay_room(text)
