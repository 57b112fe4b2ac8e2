import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from tests.integration.direct_nodes import Log, numbered, numbers
from tests.runtime.virtual_time import run

from shoal.model.ids import NodeId
from shoal.net.base import Finder, Links, Listener
from shoal.net.memory import MemoryNetwork, MemoryNode
from shoal.protocol.messages import AnyMessage, Grant, PeerAddress, Revocation

ANN, BOB, EVE = NodeId("ann"), NodeId("bob"), NodeId("eve")
NEWS = Revocation(node=EVE, shoal="reef", serial=1)


class Diary(Log):
    """A listener that also remembers gossip and look-ups."""

    def __init__(self) -> None:
        super().__init__()
        self.gossip: list[tuple[NodeId, AnyMessage]] = []
        self.found: dict[int, list[NodeId]] = {}
        self.size = 0

    def heard(self, origin: NodeId, message: AnyMessage) -> None:
        self.gossip.append((origin, message))

    def looked_up(self, lookup: int, providers: Sequence[PeerAddress]) -> None:
        self.found[lookup] = [provider.node for provider in providers]

    def estimated(self, nodes: int) -> None:
        self.size = nodes


class Three:
    """Ann, bob and eve, who know each other."""

    def __init__(self) -> None:
        self.network = MemoryNetwork(latency_s=0.01)
        self.logs = {name: Diary() for name in (ANN, BOB, EVE)}
        self.nodes = {
            name: self.network.join(name, None, log) for name, log in self.logs.items()
        }
        for one in self.nodes.values():
            for other in self.nodes.values():
                one.know(other.node, other.addresses)

    async def linked(self) -> None:
        self.nodes[ANN].send(BOB, numbered(0))
        await asyncio.sleep(1.0)


def test_a_node_in_memory_obeys_the_protocols_of_the_network() -> None:
    async def main() -> None:
        diary = Diary()
        listener: Listener = diary
        node = MemoryNetwork().join(ANN, None, listener)
        both: tuple[Links, Finder] = (node, node)

        assert both[0].addresses == ("/memory/ann",)

    run(main())


def virtually(work: Coroutine[Any, Any, None]) -> None:
    run(asyncio.wait_for(work, 1_000))


def test_messages_of_a_turn_arrive_in_order_in_one_frame() -> None:
    async def main() -> None:
        three = Three()
        for number in range(50):
            three.nodes[ANN].send(BOB, numbered(number))
        await asyncio.sleep(1.0)

        log = three.logs[BOB]
        assert numbers(log.messages[ANN]) == list(range(50))
        assert log.frames == [50]
        assert log.events == [("connected", ANN)]
        assert log.rtts == [0.02]

    virtually(main())


def test_two_who_dial_at_once_get_one_link_in_memory() -> None:
    async def main() -> None:
        three = Three()
        three.nodes[ANN].send(BOB, numbered(1))
        three.nodes[BOB].send(ANN, numbered(2))
        await asyncio.sleep(1.0)

        assert three.logs[ANN].events == [("connected", BOB)]
        assert three.logs[BOB].events == [("connected", ANN)]
        assert three.logs[ANN].messages == {BOB: [numbered(2)]}
        assert three.logs[BOB].messages == {ANN: [numbered(1)]}

    virtually(main())


def test_a_node_that_crashes_is_missed_at_once() -> None:
    async def main() -> None:
        three = Three()
        await three.linked()

        three.network.crash(BOB)
        await asyncio.sleep(0.02)

        assert three.logs[ANN].events == [("connected", BOB), ("lost", BOB)]
        assert three.logs[BOB].count("lost", ANN) == 0

    virtually(main())


def test_who_is_cut_off_is_missed_by_silence_and_comes_back() -> None:
    async def main() -> None:
        three = Three()
        await three.linked()

        three.network.cut(ANN, BOB)
        three.nodes[ANN].send(BOB, numbered(1))
        await asyncio.sleep(4.9)
        before = list(three.logs[ANN].events)
        await asyncio.sleep(0.2)
        three.nodes[ANN].send(BOB, numbered(2))
        await asyncio.sleep(3.0)
        three.network.heal(ANN, BOB)
        await asyncio.sleep(2.0)

        assert before == [("connected", BOB)]
        assert [event for event, _ in three.logs[ANN].events] == [
            "connected",
            "lost",
            "connected",
        ]
        assert numbers(three.logs[BOB].messages[ANN]) == [0, 2]

    virtually(main())


def test_what_waits_for_somebody_who_never_comes_is_given_up() -> None:
    async def main() -> None:
        three = Three()
        three.network.cut(ANN, BOB)
        three.nodes[ANN].send(BOB, numbered(1))

        await asyncio.sleep(60.0)
        three.network.heal(ANN, BOB)
        await asyncio.sleep(60.0)

        assert three.logs[BOB].events == []

    virtually(main())


def test_a_peer_that_was_cut_off_is_refused_for_a_while() -> None:
    async def main() -> None:
        three = Three()
        await three.linked()

        three.nodes[ANN].disconnect(BOB, "revoked")
        three.nodes[BOB].send(ANN, numbered(1))
        await asyncio.sleep(29.0)
        early = three.logs[ANN].messages.get(BOB)
        await asyncio.sleep(2.0)
        three.nodes[BOB].send(ANN, numbered(2))
        await asyncio.sleep(1.0)

        assert early is None
        assert three.logs[BOB].count("lost", ANN) == 1
        assert three.logs[ANN].messages[BOB] == [numbered(2)]

    virtually(main())


def test_who_is_not_admitted_gets_no_link() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        logs = Diary(), Diary()

        def nobody(peer: NodeId, grant: Grant | None) -> str:
            return "no grant"

        ann = network.join(ANN, None, logs[0])
        bob = network.join(BOB, None, logs[1], admit=nobody)
        ann.know(BOB, bob.addresses)
        ann.send(BOB, numbered(1))
        await asyncio.sleep(5.0)

        assert logs[0].events == logs[1].events == []
        assert bob.counts["not admitted"] == 1

    virtually(main())


def test_gossip_reaches_all_and_whispers_reach_those_linked() -> None:
    async def main() -> None:
        three = Three()
        await three.linked()

        three.nodes[ANN].publish(NEWS)
        three.nodes[ANN].spread(NEWS)
        three.nodes[ANN].publish(numbered(1))
        await asyncio.sleep(1.0)

        assert three.logs[BOB].gossip == [(ANN, NEWS)] * 2
        assert three.logs[EVE].gossip == [(ANN, NEWS)]
        assert three.logs[ANN].gossip == []
        assert three.nodes[ANN].counts["no gossip"] == 1

    virtually(main())


def test_a_look_up_finds_who_provides_a_key_now() -> None:
    async def main() -> None:
        three = Three()
        three.nodes[BOB].provide(["gpu/a100", "cpu/8"])
        three.nodes[EVE].provide(["gpu/a100"])
        three.nodes[ANN].look_up(1, "gpu/a100", limit=9)
        three.nodes[ANN].look_up(2, "gpu/a100", limit=1)
        await asyncio.sleep(1.0)
        three.nodes[EVE].provide([])
        three.nodes[ANN].look_up(3, "gpu/a100", limit=9)
        three.nodes[BOB].look_up(4, "gpu/a100", limit=9)
        await asyncio.sleep(1.0)

        assert three.logs[ANN].found == {1: [BOB, EVE], 2: [BOB], 3: [BOB]}
        assert three.logs[BOB].found == {4: []}

    virtually(main())


def test_closing_delivers_what_was_sent_and_ends_the_link() -> None:
    async def main() -> None:
        three = Three()
        await three.linked()

        three.nodes[ANN].send(BOB, numbered(1))
        await three.nodes[ANN].close()
        three.nodes[ANN].send(BOB, numbered(2))
        await asyncio.sleep(1.0)

        assert numbers(three.logs[BOB].messages[ANN]) == [0, 1]
        assert three.logs[BOB].count("lost", ANN) == 1
        assert three.logs[BOB].size == 3

    virtually(main())


def test_nobody_is_reached_without_an_address() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        ann: MemoryNode = network.join(ANN, None, Diary())
        network.join(BOB, None, Diary())

        ann.know(BOB, ["/ip4/192.0.2.7/tcp/4002"])
        ann.send(BOB, numbered(1))

        assert ann.counts == {"dropped unreachable": 1}
        assert PeerAddress(ANN, ann.addresses).addresses == ("/memory/ann",)

    virtually(main())
