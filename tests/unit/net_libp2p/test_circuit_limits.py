"""One greedy member does not take all circuits of a gate."""

from shoal.model.ids import NodeId
from shoal.net.libp2p.settings import RelayRoom
from shoal.net.libp2p.streams.circuit_limits import CircuitLimits

ANN, BOB, EVE = NodeId("ann"), NodeId("bob"), NodeId("eve")
ROOM = RelayRoom(circuits_from=5, circuits_between=2)


def test_one_opens_so_many_circuits_to_another_and_others_still_can() -> None:
    circuits = CircuitLimits(ROOM)

    said = [circuits.enter(EVE, BOB) for _ in range(3)]

    assert said == ["", "", "2 circuits between two are the most"]
    assert circuits.enter(ANN, BOB) == ""
    assert circuits.enter(EVE, ANN) == ""


def test_one_opens_so_many_circuits_in_all() -> None:
    circuits = CircuitLimits(ROOM)

    said = [circuits.enter(EVE, NodeId(f"n{n}")) for n in range(6)]

    assert said[:5] == [""] * 5
    assert said[5] == "5 circuits of one member are the most"
    assert circuits.enter(ANN, NodeId("n0")) == ""


def test_what_is_over_makes_room_and_is_forgotten() -> None:
    circuits = CircuitLimits(ROOM)
    for _ in range(100):
        assert circuits.enter(EVE, BOB) == ""
        circuits.leave(EVE, BOB)

    assert len(circuits) == 0
    assert not circuits._pairs
    assert not circuits._sources
