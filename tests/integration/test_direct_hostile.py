"""What strangers and bad members do to a node, over real sockets."""

import asyncio
import contextlib
import os
import ssl
import statistics
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import cast

import pytest
from tests.integration.direct_nodes import (
    Node,
    closed,
    eventually,
    node,
    numbered,
    run,
)
from tests.unit.net.shoals import granted, identity

from shoal.net.certificates import contexts
from shoal.net.frames import Kind, framed
from shoal.net.multiaddr import parse
from shoal.net.settings import LinkSettings
from shoal.protocol import codec
from shoal.protocol.limits import FRAME_BYTES_MAX
from shoal.protocol.messages import Goodbye, Hello

pytestmark = pytest.mark.integration

GROWTH_BYTES_MAX = 64 << 20
ATTACKERS = 200
ATTACK_S = 6.0
HELLO = framed(Kind.MESSAGES, codec.encode([Hello()])[0])
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]
MEMBER = identity(90)
MEMBERS = contexts(MEMBER, granted(MEMBER.node)).dialling
STRANGERS = contexts(identity(91), None).dialling


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@contextlib.asynccontextmanager
async def dialled(
    target: Node, context: ssl.SSLContext | None = None
) -> AsyncIterator[Stream]:
    """Connect to a node with plain tools, without any of our code."""
    address = parse(target.links.addresses[0])
    reader, writer = await asyncio.open_connection(
        *(address.host, address.port),
        ssl=context,
        server_hostname="" if context else None,
        limit=1 << 22,
    )
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def ends(reader: asyncio.StreamReader) -> bytes:
    """Return all that comes until the other side closes, which it must."""
    async with asyncio.timeout(5):
        try:
            return await reader.read(-1)
        except (ConnectionError, ssl.SSLError):
            return b""


async def garbage(target: Node) -> None:
    async with dialled(target) as (reader, writer):
        writer.write(os.urandom(2_000))
        await ends(reader)


async def half_open(target: Node) -> None:
    async with dialled(target) as (reader, _):
        await ends(reader)


async def slow_loris(target: Node) -> None:
    async with dialled(target) as (_, writer):
        for byte in b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 20:
            writer.write(bytes((byte,)))
            await asyncio.sleep(0.2)


async def without_certificate(target: Node) -> None:
    bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    bare.check_hostname = False
    bare.verify_mode = ssl.CERT_NONE
    async with dialled(target, bare) as (reader, writer):
        writer.write(HELLO)
        await ends(reader)


async def huge_first_frame(target: Node) -> None:
    async with dialled(target, MEMBERS) as (reader, writer):
        writer.write(b"\x00\x0f\xff\xff" + bytes(1 << 20))
        await ends(reader)


async def stranger_who_talks(target: Node) -> None:
    async with dialled(target, STRANGERS) as (reader, writer):
        writer.write(HELLO * 100)
        await ends(reader)


async def endless_handshake(target: Node) -> None:
    async with dialled(target) as (reader, writer):
        # A client hello that is cut into records of one byte, and never ends.
        writer.write(b"\x16\x03\x01\x00\x01\x01" * 20_000)
        await ends(reader)


ATTACKS: list[Callable[[Node], Awaitable[None]]] = [
    garbage,
    half_open,
    slow_loris,
    without_certificate,
    huge_first_frame,
    stranger_who_talks,
    endless_handshake,
]


async def attack_for_ever(number: int, target: Node) -> None:
    attack = ATTACKS[number % len(ATTACKS)]
    while True:
        with contextlib.suppress(OSError, ssl.SSLError, TimeoutError):
            await attack(target)
        await asyncio.sleep(0.05)


async def round_trips(ann: Node, bob: Node, until_s: float) -> list[float]:
    """Send back and forth; return how long each round trip took."""
    clock = asyncio.get_running_loop().time
    taken: list[float] = []
    while clock() < until_s:
        start_s = clock()
        ann.say(bob, numbered(len(taken)))
        await eventually(lambda: len(bob.heard(ann)) == len(taken) + 1)
        taken.append(clock() - start_s)
        await asyncio.sleep(0.02)
    return taken


def test_two_hundred_attackers_leave_memory_bounded_and_members_served() -> None:
    async def main() -> None:
        clock = asyncio.get_running_loop().time
        ann, bob, eve = await node(1), await node(2), await node(3)
        ann.know(bob)
        ann.say(bob, numbered(0))
        await eventually(lambda: bob.heard(ann))
        bob.log.messages.clear()
        before = resident_bytes()

        attackers = [
            asyncio.create_task(attack_for_ever(n, bob)) for n in range(ATTACKERS)
        ]
        trips = await round_trips(ann, bob, until_s=clock() + ATTACK_S)
        eve.know(bob)
        eve.say(bob, numbered(7))
        await eventually(lambda: bob.heard(eve), timeout_s=10.0)
        growth = resident_bytes() - before
        for attacker in attackers:
            attacker.cancel()
        await asyncio.gather(*attackers, return_exceptions=True)

        assert growth < GROWTH_BYTES_MAX
        assert len(trips) > 30
        assert statistics.median(trips) < 0.2
        assert ("lost", ann.id) not in bob.log.events
        await closed(ann, bob, eve)

    run(main())


@pytest.mark.parametrize(
    ("attack", "counted"),
    [
        (garbage, "tls"),
        (without_certificate, "tls"),
        (huge_first_frame, "oversized"),
        (stranger_who_talks, "not admitted"),
        (half_open, "slow handshake"),
    ],
)
def test_every_attack_is_counted_by_its_kind(
    attack: Callable[[Node], Awaitable[None]], counted: str
) -> None:
    async def main() -> None:
        bob = await node(2, settings=LinkSettings(handshake_s=0.4))

        await attack(bob)
        await eventually(lambda: bob.links.counts[counted])

        assert +bob.links.counts == {counted: 1}
        assert bob.log.events == []
        await closed(bob)

    run(main())


async def greeted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Come up as a member, by hand: the id decides who selects."""
    writer.write(HELLO)
    header = await reader.readexactly(4)
    await reader.readexactly(int.from_bytes(header[1:], "big"))


@pytest.mark.parametrize(
    ("said", "counted"),
    [
        (framed(Kind.MESSAGES, b"\xc1") * 3, "malformed"),
        (b"\x00\xff\xff\xff", "oversized"),
        (b"\x09\x00\x00\x00", "malformed"),
        (framed(Kind.SELECT) * 2, "malformed"),
        (framed(Kind.MESSAGES, bytes(FRAME_BYTES_MAX)) * 3, "malformed"),
    ],
)
def test_a_member_that_talks_nonsense_is_cut_off(said: bytes, counted: str) -> None:
    async def main() -> None:
        bob = await node(2)
        async with dialled(bob, MEMBERS) as (reader, writer):
            await greeted(reader, writer)
            if MEMBER.node < bob.id:
                writer.write(framed(Kind.SELECT))
            await eventually(lambda: bob.links.connected)

            writer.write(said)
            await ends(reader)

        assert bob.links.counts[counted] == 1
        assert bob.log.events == [("connected", MEMBER.node), ("lost", MEMBER.node)]
        await closed(bob)

    run(main())


def test_two_bad_frames_are_forgiven() -> None:
    async def main() -> None:
        bob = await node(2)
        good = framed(Kind.MESSAGES, codec.encode([Goodbye()])[0])
        async with dialled(bob, MEMBERS) as (reader, writer):
            await greeted(reader, writer)
            if MEMBER.node < bob.id:
                writer.write(framed(Kind.SELECT))
            writer.write(framed(Kind.MESSAGES, b"\xc1") * 2 + good)
            await eventually(lambda: bob.log.messages.get(MEMBER.node))

        assert bob.log.messages[MEMBER.node] == [Goodbye()]
        assert bob.links.counts["bad frame"] == 2
        await closed(bob)

    run(main())


def test_a_member_that_pings_and_never_reads_costs_no_memory() -> None:
    async def main() -> None:
        bob = await node(2)
        async with dialled(bob, MEMBERS) as (reader, writer):
            await greeted(reader, writer)
            if MEMBER.node < bob.id:
                writer.write(framed(Kind.SELECT))
            await eventually(lambda: bob.links.connected)
            cast("asyncio.Transport", writer.transport).pause_reading()
            [connection] = bob.links._open

            for _ in range(200):
                writer.write(framed(Kind.PING, bytes(1_000)) * 100)
                await asyncio.sleep(0.001)
            unsent = connection.unsent_bytes

        assert unsent < 1 << 20
        await closed(bob)

    run(main())
