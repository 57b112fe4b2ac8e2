"""Links over streams of libp2p: relayed, refused, and found on the local network."""

import asyncio
from collections.abc import Callable

import pytest
from tests.integration.libp2p_nodes import Node, eventually, meshed, shoal
from tests.integration.multicast import multicast_works
from tests.unit.net.shoals import granted, identity

from shoal.model.ids import LeaseId, NodeId, RequestId
from shoal.net.libp2p.settings import RelayRoom
from shoal.protocol.messages import AnyMessage, Grant, Inquiry, Release

pytestmark = pytest.mark.integration
INQUIRY = Inquiry(request=RequestId("r"))


def release(number: int) -> Release:
    return Release(leases=(LeaseId(f"lease-{number}"),))


def test_two_that_nobody_can_dial_talk_through_a_gate() -> None:
    async def scene() -> None:
        async with shoal(3, listen=()) as nodes:
            gate, one, other = nodes
            await eventually(lambda: all(reserved(node) for node in (one, other)))

            one.port.send(other.node, INQUIRY)
            await eventually(lambda: (one.node, INQUIRY) in other.log.messages)
            other.port.send(one.node, release(1))
            await eventually(lambda: (other.node, release(1)) in one.log.messages)

            assert one.counts["relayed"] == 1
            assert ("connected", other.node) in one.log.links
            assert gate.counts.get("relay-refused", 0) == 0

    asyncio.run(scene())


def reserved(node: Node) -> bool:
    return bool(node.port._shared.circuits)


def test_a_gate_keeps_a_place_for_so_many_members_and_no_more() -> None:
    async def scene() -> None:
        async with shoal(3, listen=(), relay=RelayRoom(members=1)) as nodes:
            _, *others = nodes
            await eventually(lambda: any(map(reserved, others)))
            await eventually(
                lambda: any(node.counts.get("reserve-failed", 0) for node in others)
            )

            assert sum(map(reserved, others)) == 1

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("room", "leases"),
    [(RelayRoom(circuit_s=3), 1), (RelayRoom(circuit_bytes=150_000), 200)],
    ids=["time", "bytes"],
)
def test_a_link_outlives_the_circuits_that_carry_it(
    room: RelayRoom, leases: int
) -> None:
    async def scene() -> None:
        async with shoal(3, listen=(), relay=room) as nodes:
            _, one, other = nodes
            await eventually(lambda: all(reserved(node) for node in (one, other)))
            sent: list[Release] = []

            def second_circuit() -> bool:
                sent.append(release_of(leases, len(sent)))
                one.port.send(other.node, sent[-1])
                counts = (node.counts.get("relayed", 0) for node in (one, other))
                return sum(counts) >= 2

            await eventually(second_circuit)
            last = release_of(leases, len(sent))

            def is_heard() -> bool:
                one.port.send(other.node, last)
                return (one.node, last) in other.log.messages

            await eventually(is_heard)

    asyncio.run(scene())


def release_of(leases: int, number: int) -> Release:
    return Release(leases=tuple(LeaseId(f"{n:040}-{number}") for n in range(leases)))


def test_a_worker_behind_a_gate_is_found_and_reached() -> None:
    async def scene() -> None:
        async with shoal(3, listen=()) as nodes:
            _, worker, scheduler = nodes
            await eventually(lambda: reserved(worker))
            worker.port.provide(["any"])
            await eventually(lambda: worker.counts.get("provided", 0) >= 1)

            scheduler.port.look_up(1, "any", 64)
            await eventually(lambda: 1 in scheduler.log.found)
            (provider,) = scheduler.log.found[1]
            scheduler.port.send(provider.node, INQUIRY)

            await eventually(lambda: (scheduler.node, INQUIRY) in worker.log.messages)
            assert provider.addresses == (), "no direct link leads there"

    asyncio.run(scene())


def test_a_stranger_without_a_grant_gets_nothing_on_a_stream() -> None:
    async def scene() -> None:
        async with shoal(2, strangers=1) as nodes:
            gate, _, stranger = nodes
            await meshed(nodes)

            def is_refused() -> bool:
                stranger.port.send(gate.node, INQUIRY)
                return gate.counts.get("stream-refused", 0) >= 3

            await eventually(is_refused)

            assert stranger.log.links == []
            assert stranger.log.messages == []
            assert gate.log.links == []
            assert gate.log.messages == []

    asyncio.run(scene())


FLAWED: dict[str, Callable[[NodeId], Grant | None]] = {
    "no grant": lambda _node: None,
    "expired": lambda node: granted(node, expires_wall_s=1.0),
    "signed by nobody": lambda node: granted(node, signer=identity(66)),
    "of another shoal": lambda node: granted(node, shoal="lagoon"),
    "of another node": lambda _node: granted(identity(67).node),
}


@pytest.mark.parametrize("flaw", FLAWED)
def test_a_gate_relays_nothing_for_whose_grant_does_not_hold(flaw: str) -> None:
    async def scene() -> None:
        shown = FLAWED[flaw]
        async with shoal(1, strangers=1, listen=(), shown=shown) as nodes:
            gate, stranger = nodes

            await eventually(lambda: stranger.counts.get("reserve-failed", 0) >= 1)

            await eventually(lambda: gate.counts.get("stream-refused", 0) >= 1)
            assert not reserved(stranger)
            assert gate.log.links == []

    asyncio.run(scene())


def test_who_is_cut_off_is_not_relayed_for_any_more() -> None:
    async def scene() -> None:
        async with shoal(3, listen=()) as nodes:
            gate, one, other = nodes
            await eventually(lambda: all(reserved(node) for node in (one, other)))
            one.port.send(other.node, INQUIRY)
            await eventually(lambda: (one.node, INQUIRY) in other.log.messages)

            gate.port.disconnect(one.node, "revoked")

            await eventually(lambda: ("lost", one.node) in other.log.links)
            await eventually(lambda: not reserved(one))

    asyncio.run(scene())


async def streamed(nodes: list[Node]) -> tuple[Node, Node]:
    """Return a gate and a node when there is a stream between them."""
    gate, node = nodes
    await meshed(nodes)
    node.port.open(gate.node)
    await eventually(lambda: ("connected", node.node) in gate.log.links)
    await eventually(lambda: ("connected", gate.node) in node.log.links)
    return gate, node


def test_a_stream_is_left_for_a_direct_link_on_both_sides() -> None:
    async def scene() -> None:
        async with shoal(2) as nodes:
            gate, node = await streamed(nodes)

            node.port.note_link(gate.node, is_up=True)
            gate.port.note_link(node.node, is_up=True)
            for number in range(100):
                node.port.send(gate.node, release(number))
            node.port.move(gate.node)

            await eventually(lambda: ("moved", node.node) in gate.log.links)
            await eventually(lambda: ("lost", gate.node) in node.log.links)
            assert len(gate.log.messages) == 101, "with the greeting"
            assert node.log.ends == [False]

    asyncio.run(scene())


def test_two_thousand_messages_arrive_in_order() -> None:
    async def scene() -> None:
        async with shoal(2) as nodes:
            gate, node = nodes
            await meshed(nodes)
            for number in range(2_000):
                node.port.send(gate.node, release(number))

            await eventually(lambda: len(gate.log.messages) == 2_001)
            sent = [release(number) for number in range(2_000)]
            assert [message for _, message in gate.log.messages[1:]] == sent
            await eventually(lambda: bool(node.log.rtts))

    asyncio.run(scene())


def test_a_link_that_is_cut_is_reported_on_both_sides() -> None:
    async def scene() -> None:
        async with shoal(2) as nodes:
            gate, node = nodes
            await meshed(nodes)
            node.port.send(gate.node, INQUIRY)
            await eventually(lambda: bool(gate.log.messages))

            gate.port.disconnect(node.node, "revoked")

            await eventually(lambda: ("lost", node.node) in gate.log.links)
            await eventually(lambda: ("lost", gate.node) in node.log.links)

    asyncio.run(scene())


def test_a_stream_that_is_left_without_a_direct_link_is_followed_by_another() -> None:
    async def scene() -> None:
        async with shoal(2) as nodes:
            gate, node = await streamed(nodes)

            for number in range(100):
                node.port.send(gate.node, release(number))
                if number == 50:
                    node.port.move(gate.node)
                    await asyncio.sleep(0)

            def releases() -> list[AnyMessage]:
                return [m for _, m in gate.log.messages if isinstance(m, Release)]

            await eventually(lambda: len(releases()) == 100)
            assert releases() == [release(number) for number in range(100)]
            assert gate.log.links.count(("connected", node.node)) == 2

    asyncio.run(scene())


def test_nodes_find_each_other_on_the_local_network() -> None:
    if not multicast_works():
        pytest.skip("multicast does not come back on this machine: no mDNS to test")

    async def scene() -> None:
        async with shoal(3, mdns=True) as nodes:
            await meshed(nodes)

            nodes[2].port.send(nodes[0].node, INQUIRY)

            await eventually(lambda: (nodes[2].node, INQUIRY) in nodes[0].log.messages)

    asyncio.run(scene())
