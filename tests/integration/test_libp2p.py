"""Real hosts of libp2p on loopback: gossip, the DHT, and a host that dies."""

import asyncio
from functools import partial
from itertools import count

import pytest
from tests.integration.libp2p_attacker import Attacker
from tests.integration.libp2p_nodes import Node, eventually, meshed, shoal

from shoal.protocol.codec import encode_gossip
from shoal.protocol.limits import GOSSIP_BYTES_MAX
from shoal.protocol.messages import Announcement, Load, LoadDigest

pytestmark = pytest.mark.integration
NUMBERS = count()


def announcement(node: Node, seq: int = 0) -> Announcement:
    return Announcement(scheduler=node.node, seq=seq, grant=node.hello.grant)


async def tell_all(speaker: Node, nodes: list[Node], seq: int) -> None:
    """Publish until all have heard: at the beginning some have no neighbours yet."""
    others = [node for node in nodes if node is not speaker]
    news = announcement(speaker, seq)
    speaker.port.publish(news)
    await eventually(lambda: all(node.has_heard(news) for node in others))


def test_an_announcement_reaches_all_who_know_only_a_gate() -> None:
    async def scene() -> None:
        async with shoal(8) as nodes:
            await meshed(nodes)

            await tell_all(nodes[3], nodes, 0)
            await tell_all(nodes[0], nodes, 1)

            assert all(node.log.size == 8 for node in nodes)
            heard = [message for _, message in nodes[5].log.gossip]
            assert len(heard) == len(set(heard)), "each is delivered once"

    asyncio.run(scene())


def test_what_is_told_to_neighbours_is_not_passed_on() -> None:
    async def scene() -> None:
        async with shoal(4) as nodes:
            await meshed(nodes)
            digest = LoadDigest(node=nodes[1].node, epoch=1, seq=1, load=Load())

            nodes[1].port.spread(digest)

            await eventually(lambda: any(n.has_heard(digest) for n in nodes[2:]))
            assert not nodes[1].has_heard(digest)

    asyncio.run(scene())


def test_forged_oversized_and_broken_gossip_is_dropped_and_counted() -> None:
    async def scene() -> None:
        async with shoal(3) as nodes:
            gate, speaker, _ = nodes
            await meshed(nodes)
            with Attacker(66) as eve:
                await asyncio.to_thread(eve.meet, gate.port.addresses)
                news = announcement(speaker, 5)

                eve.send(
                    eve.forged(encode_gossip(news), speaker.node),
                    eve.message(b"x" * (GOSSIP_BYTES_MAX + 1)),
                    eve.message(b"\xc1"),
                )

                for kind in ("forged", "oversized", "malformed"):
                    await eventually(partial(is_counted, gate, kind))
                assert not any(node.has_heard(news) for node in nodes)
                await tell_all(speaker, nodes, 6)

    asyncio.run(scene())


def test_gossip_that_is_sent_again_later_is_dropped_and_counted() -> None:
    async def scene() -> None:
        async with shoal(2) as nodes:
            gate, speaker = nodes
            await meshed(nodes)
            with Attacker(66) as eve:
                await asyncio.to_thread(eve.meet, gate.port.addresses)
                news = encode_gossip(announcement(speaker, 5))
                other = encode_gossip(announcement(speaker, 6))

                # The same number again, with other contents: nobody has seen it.
                eve.send(eve.message(news, number=77))
                await eventually(lambda: len(gate.log.gossip) == 1)
                eve.send(eve.message(other, number=77))

                await eventually(partial(is_counted, gate, "replayed"))
                assert len(gate.log.gossip) == 1

    asyncio.run(scene())


def test_a_neighbour_that_sends_nothing_but_rubbish_is_cut_off() -> None:
    async def scene() -> None:
        async with shoal(2) as nodes:
            gate, speaker = nodes
            await meshed(nodes)
            with Attacker(66) as eve:
                await asyncio.to_thread(eve.meet, gate.port.addresses)

                eve.send(*(eve.message(b"\xc1%d" % n) for n in range(60)))

                await eventually(partial(is_counted, gate, "banned"))
                await tell_all(speaker, nodes, 1)

    asyncio.run(scene())


def is_counted(node: Node, kind: str) -> bool:
    return node.counts.get(f"gossip-{kind}", 0) > 0


def test_a_worker_is_found_by_a_capability_it_provides() -> None:
    async def scene() -> None:
        async with shoal(5, direct=("/ip4/192.0.2.7/tcp/4002",)) as nodes:
            await meshed(nodes)
            worker, scheduler = nodes[2], nodes[4]

            worker.port.provide(["gpu-memory/16", "any"])
            await eventually(lambda: worker.counts.get("provided", 0) >= 2)
            scheduler.port.look_up(1, "gpu-memory/16", 64)
            scheduler.port.look_up(2, "gpu-memory/64", 64)
            await eventually(lambda: len(scheduler.log.found) == 2)

            (provider,) = scheduler.log.found[1]
            assert provider.node == worker.node
            assert provider.addresses == ("/ip4/192.0.2.7/tcp/4002",)
            assert scheduler.log.found[2] == ()

    asyncio.run(scene())


async def found(asking: Node, lookup: int, provider: Node) -> None:
    """Look up until a provider is found: records take a moment to spread."""
    for number in range(lookup, lookup + 20):
        asking.port.look_up(number, "any", 64)
        await eventually(partial(asking.log.found.__contains__, number))
        if provider.node in {p.node for p in asking.log.found[number]}:
            return
        await asyncio.sleep(0.2)
    raise AssertionError("nothing found")


def test_the_record_of_a_dead_node_is_a_hint_that_leads_nowhere() -> None:
    async def scene() -> None:
        async with shoal(4) as nodes:
            await meshed(nodes)
            worker, scheduler = nodes[2], nodes[3]
            worker.port.provide(["any"])
            await found(scheduler, 1, worker)

            await worker.port.close()
            await found(scheduler, 1_000, worker)

            scheduler.port.send(worker.node, announcement(scheduler))
            await eventually(lambda: scheduler.counts.get("unreachable", 0) >= 1)
            assert ("connected", worker.node) not in scheduler.log.links

    asyncio.run(scene())


def test_a_host_that_dies_is_started_again_and_hears_gossip() -> None:
    async def scene() -> None:
        async with shoal(3) as nodes:
            await meshed(nodes)
            gate, patient, speaker = nodes
            addresses = patient.port.addresses
            patient.port.send(speaker.node, announcement(patient))
            await eventually(lambda: len(patient.log.links) == 1)

            patient.bombs = 1
            patient.port.send(gate.node, announcement(patient))
            await eventually(lambda: patient.counts.get("host-restarts", 0) == 1)
            await eventually(lambda: ("lost", speaker.node) in patient.log.links)
            await eventually(partial(hears_again, patient, speaker))
            patient.port.send(gate.node, announcement(patient))
            await eventually(lambda: ("connected", gate.node) in patient.log.links)

            assert "died by a test" in patient.port.stopped_because
            assert patient.port.addresses == addresses

    asyncio.run(scene())


def hears_again(patient: Node, speaker: Node) -> bool:
    """Say something new each time that is asked, until some of it is heard."""
    speaker.port.publish(announcement(speaker, next(NUMBERS)))
    return bool(patient.log.gossip)
