"""What a node does about strangers and bad members, over real sockets."""

import asyncio
import contextlib
import os
import statistics
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import cast

import pytest
from tests.integration.direct_attackers import (
    HELLO,
    MEMBER,
    MEMBERS,
    dialled,
    endless_handshake,
    ends,
    garbage,
    half_open,
    huge_first_frame,
    stranger_who_talks,
    without_certificate,
)
from tests.integration.direct_nodes import (
    Node,
    closed,
    eventually,
    node,
    numbered,
    run,
)

from shoal.net.direct.frames import FrameKind, framed
from shoal.net.direct.settings import LinkSettings
from shoal.protocol import codec
from shoal.protocol.limits import FRAME_BYTES_MAX
from shoal.protocol.messages import Goodbye

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
GROWTH_BYTES_MAX = 64 << 20
ATTACKERS = 200
ATTACK_S = 6.0


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@contextlib.asynccontextmanager
async def attackers(target: Node, count: int) -> AsyncIterator[None]:
    """Let a process of its own attack, so that its memory does not count here."""
    address = target.links.addresses[0]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.integration.direct_attackers"),
        *(address, str(count)),
        cwd=ROOT,
    )
    try:
        yield
        assert process.returncode is None, "the attackers gave up"
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


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


@pytest.mark.soak  # `test_hostile_node` asks it of a whole node.
def test_two_hundred_attackers_leave_memory_bounded_and_members_served() -> None:
    async def main() -> None:
        clock = asyncio.get_running_loop().time
        ann, bob, eve = await node(1), await node(2), await node(3)
        ann.know(bob)
        ann.say(bob, numbered(0))
        await eventually(lambda: bob.heard(ann))
        bob.log.messages.clear()
        before = resident_bytes()

        async with attackers(bob, ATTACKERS):
            await eventually(lambda: bob.links.counts.total() > ATTACKERS, 20.0)
            trips = await round_trips(ann, bob, until_s=clock() + ATTACK_S)
            eve.know(bob)
            eve.say(bob, numbered(7))
            await eventually(lambda: bob.heard(eve), timeout_s=10.0)
            growth = resident_bytes() - before

        assert growth < GROWTH_BYTES_MAX
        assert len(trips) > 10
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
        (endless_handshake, "oversized"),
    ],
)
def test_every_attack_is_counted_by_its_kind(
    attack: Callable[[str], Awaitable[None]], counted: str
) -> None:
    async def main() -> None:
        bob = await node(2, settings=LinkSettings(handshake_s=0.4))

        await attack(bob.links.addresses[0])
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
        (framed(FrameKind.MESSAGES, b"\xc1") * 3, "malformed"),
        (b"\x00\xff\xff\xff", "oversized"),
        (b"\x09\x00\x00\x00", "malformed"),
        (framed(FrameKind.SELECT) * 2, "malformed"),
        (framed(FrameKind.MESSAGES, bytes(FRAME_BYTES_MAX)) * 3, "malformed"),
    ],
)
def test_a_member_that_talks_nonsense_is_cut_off(said: bytes, counted: str) -> None:
    async def main() -> None:
        bob = await node(2)
        async with dialled(bob.links.addresses[0], MEMBERS) as (reader, writer):
            await greeted(reader, writer)
            if MEMBER.node < bob.id:
                writer.write(framed(FrameKind.SELECT))
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
        good = framed(FrameKind.MESSAGES, codec.encode([Goodbye()])[0])
        async with dialled(bob.links.addresses[0], MEMBERS) as (reader, writer):
            await greeted(reader, writer)
            if MEMBER.node < bob.id:
                writer.write(framed(FrameKind.SELECT))
            writer.write(framed(FrameKind.MESSAGES, b"\xc1") * 2 + good)
            await eventually(lambda: bob.log.messages.get(MEMBER.node))

        assert bob.log.messages[MEMBER.node] == [Goodbye()]
        assert bob.links.counts["bad frame"] == 2
        await closed(bob)

    run(main())


def test_a_member_that_pings_and_never_reads_costs_no_memory() -> None:
    async def main() -> None:
        bob = await node(2)
        async with dialled(bob.links.addresses[0], MEMBERS) as (reader, writer):
            await greeted(reader, writer)
            if MEMBER.node < bob.id:
                writer.write(framed(FrameKind.SELECT))
            await eventually(lambda: bob.links.connected)
            cast("asyncio.Transport", writer.transport).pause_reading()
            [connection] = bob.links._open

            for _ in range(200):
                writer.write(framed(FrameKind.PING, bytes(1_000)) * 100)
                await asyncio.sleep(0.001)
            unsent = connection.unsent_bytes

        assert unsent < 1 << 20
        await closed(bob)

    run(main())
