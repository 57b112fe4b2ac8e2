"""What libp2p 0.8.1 does wrong by itself, and does not with us."""

import asyncio
import contextlib
import socket
from collections import Counter
from random import Random

import libp2p.network.swarm as swarm_module
import pytest
import trio
from libp2p.network.swarm import Swarm
from multiaddr import Multiaddr  # type: ignore[import-untyped]
from tests.integration.libp2p_nodes import eventually, meshed, shoal
from tests.property.mutation import bytewise
from tests.unit.net.shoals import identity

from shoal.model.ids import RequestId
from shoal.net.libp2p.finding import address_book
from shoal.net.libp2p.finding.gossip_guard import GossipGuard
from shoal.net.libp2p.thread.host_parts import (
    HostPlan,
    IdleConnector,
    MemberHost,
    PlainTcp,
    Wiring,
    make_swarm,
)
from shoal.protocol.messages import Inquiry

pytestmark = pytest.mark.integration
ANN, GATE = identity(1), identity(2)
PLAIN = "/ip4/192.0.2.7/tcp/4001"


def spoken(text: str) -> bytes:
    """Return a line as libp2p says it when two hosts agree on a protocol."""
    line = text.encode() + b"\n"
    return bytes((len(line),)) + line


def swarm() -> Swarm:
    plan = HostPlan(ANN.key.private_bytes_raw(), (), ("all",), "near", is_gate=False)
    return make_swarm(plan, PlainTcp())


@pytest.mark.parametrize("offer", ["/plaintext/2.0.0", "/tls/1.0.0", "/secio/1.0.0"])
def test_a_host_encrypts_by_noise_or_not_at_all(offer: str) -> None:
    def answer(port: int) -> bytes:
        with socket.create_connection(("127.0.0.1", port), timeout=5.0) as peer:
            peer.sendall(spoken("/multistream/1.0.0") + spoken(offer))
            heard = b""
            while len(heard) < len(spoken("/multistream/1.0.0") + spoken("na")):
                heard += peer.recv(1_024)
            return heard

    async def scene() -> None:
        async with shoal(1) as (gate,):
            port = int(gate.port.addresses[0].split("/")[4])

            heard = await asyncio.to_thread(answer, port)

            assert heard == spoken("/multistream/1.0.0") + spoken("na")

    asyncio.run(scene())


def test_nonsense_at_its_port_does_not_end_the_host() -> None:
    greeting = spoken("/multistream/1.0.0")
    seeds = [greeting, greeting + spoken("/noise"), greeting + spoken("ls")]

    def bombard(port: int) -> None:
        draw = Random(13)
        for _ in range(40):
            data = draw.choice(seeds[1:]) + draw.randbytes(300)
            data = draw.choice((data, bytewise(draw, seeds)))
            place = ("127.0.0.1", port)
            with (
                contextlib.suppress(OSError),
                socket.create_connection(place, 5.0) as peer,
            ):
                peer.sendall(data)

    async def scene() -> None:
        async with shoal(2) as (gate, node):
            await meshed([gate, node])

            port = int(gate.port.addresses[0].split("/")[4])
            await asyncio.to_thread(bombard, port)
            asked = Inquiry(request=RequestId("r"))
            node.port.send(gate.node, asked)
            await eventually(lambda: (node.node, asked) in gate.log.messages)

            assert "host-restarts" not in gate.counts

    asyncio.run(scene())


def test_a_handler_that_fails_does_not_end_the_host() -> None:
    async def scene() -> None:
        async with shoal(2) as (gate, node):
            await meshed([gate, node])

            gate.bombs = 1
            node.port.send(gate.node, Inquiry(request=RequestId("lost")))
            await eventually(lambda: gate.counts.get("handler-failed", 0) == 1)
            again = Inquiry(request=RequestId("r"))

            def is_heard() -> bool:
                node.port.send(gate.node, again)  # Not at once: it failed just now.
                return (node.node, again) in gate.log.messages

            await eventually(is_heard)

            assert "host-restarts" not in gate.counts

    asyncio.run(scene())


def test_a_dial_does_not_wait_for_a_second_address() -> None:
    assert swarm_module._HAPPY_EYEBALLS_DELAY == 0.0


def test_nobody_is_dialled_unasked() -> None:
    assert isinstance(swarm().auto_connector, IdleConnector)


def test_addresses_of_direct_links_are_not_dialled_by_libp2p() -> None:
    tcp = PlainTcp()

    assert tcp.can_dial(Multiaddr(PLAIN))
    assert not tcp.can_dial(Multiaddr(address_book.shown_direct(PLAIN)))


def test_what_was_dialled_and_given_up_is_closed_in_the_end() -> None:
    async def scene() -> None:
        with socket.create_server(("127.0.0.1", 0)) as peer:
            tcp = PlainTcp()
            where = Multiaddr(f"/ip4/127.0.0.1/tcp/{peer.getsockname()[1]}")
            given_up = await tcp.dial(where)

            await tcp.close()

            accepted, _ = peer.accept()
            with accepted:
                accepted.settimeout(5.0)
                assert accepted.recv(1) == b""
            del given_up  # Not before: it would be closed by that.

    trio.run(scene)


def test_the_address_of_a_circuit_is_shown_whole() -> None:
    circuit = address_book.circuit(f"{PLAIN}/p2p/{GATE.node}", ANN.node)
    wiring = Wiring(
        guard=GossipGuard(0.0),
        counts=Counter(),
        shown=lambda: (PLAIN, circuit),
        deliver=lambda _origin, _message: None,
        may_relay=lambda _peer: False,
    )

    shown = [str(address) for address in MemberHost(swarm(), wiring).get_addrs()]

    assert shown == [f"{PLAIN}/p2p/{ANN.node}", circuit]
