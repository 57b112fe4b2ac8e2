"""Who decides between two connections of one pair, played by hand against a node."""

import asyncio
import contextlib

import pytest
from tests.integration.direct_attackers import HELLO, MEMBER, MEMBERS, dialled
from tests.integration.direct_nodes import Node, eventually, node, run
from tests.unit.net.shoals import identity

from shoal.net.direct.frames import HEADER_BYTES, Frame, FrameKind, framed
from shoal.protocol import codec
from shoal.protocol.messages import Goodbye

pytestmark = pytest.mark.integration
SMALLER = next(n for n in range(1, 99) if identity(n).node < MEMBER.node)
LARGER = next(n for n in range(1, 99) if identity(n).node > MEMBER.node)
GOODBYE = framed(FrameKind.MESSAGES, codec.encode([Goodbye()])[0])
Wires = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def frame(reader: asyncio.StreamReader) -> Frame:
    header = await reader.readexactly(HEADER_BYTES)
    payload = await reader.readexactly(int.from_bytes(header[1:], "big"))
    return Frame(FrameKind(header[0]), payload)


async def frame_of(kind: FrameKind, reader: asyncio.StreamReader) -> Frame:
    """Return the next frame of a kind, whatever comes before it."""
    async with asyncio.timeout(5):
        while (found := await frame(reader)).kind != kind:
            pass
        return found


async def greeted(stack: contextlib.AsyncExitStack, target: Node) -> Wires:
    """Dial as a member, and say hello."""
    wires = await stack.enter_async_context(dialled(target.links.addresses[0], MEMBERS))
    wires[1].write(HELLO)
    await frame_of(FrameKind.MESSAGES, wires[0])
    return wires


def test_while_the_link_answers_a_second_connection_is_superfluous() -> None:
    async def main() -> None:
        bob = await node(SMALLER)
        async with contextlib.AsyncExitStack() as stack:
            reader, writer = await greeted(stack, bob)
            await frame_of(FrameKind.SELECT, reader)
            await frame_of(FrameKind.PING, reader)
            second, _ = await greeted(stack, bob)

            question = await frame_of(FrameKind.PING, reader)
            writer.write(framed(FrameKind.PONG, question.payload))
            told = await frame_of(FrameKind.CLOSE, second)

            assert told.payload == b"one of two"
            assert bob.log.events == [("connected", MEMBER.node)]

    run(main())


def test_when_the_link_breaks_the_second_connection_takes_its_place() -> None:
    async def main() -> None:
        bob = await node(SMALLER)
        async with contextlib.AsyncExitStack() as stack:
            reader, writer = await greeted(stack, bob)
            await frame_of(FrameKind.SELECT, reader)
            second, pen = await greeted(stack, bob)
            await eventually(lambda: bob.links._peers[MEMBER.node].rival)

            writer.transport.abort()
            await frame_of(FrameKind.SELECT, second)
            pen.write(GOODBYE)
            await eventually(lambda: bob.log.messages)

            told = [event for event, _ in bob.log.events]
            assert told == ["connected", "lost", "connected"]

    run(main())


def test_the_node_with_the_larger_id_lets_the_other_select() -> None:
    async def main() -> None:
        bob = await node(LARGER)
        async with contextlib.AsyncExitStack() as stack:
            await greeted(stack, bob)
            _, pen = await greeted(stack, bob)
            before = list(bob.log.events)

            pen.write(framed(FrameKind.SELECT) + GOODBYE)
            await eventually(lambda: bob.log.messages)

            assert before == []
            assert bob.log.events == [("connected", MEMBER.node)]

    run(main())


@pytest.mark.parametrize("early", [GOODBYE, framed(FrameKind.PING, bytes(8))])
def test_whoever_speaks_before_the_link_is_selected_is_cut_off(early: bytes) -> None:
    async def main() -> None:
        bob = await node(LARGER)
        async with contextlib.AsyncExitStack() as stack:
            reader, writer = await greeted(stack, bob)

            writer.write(early)
            await frame_of(FrameKind.CLOSE, reader)

            assert bob.links.counts["malformed"] == 1
            assert bob.log.events == []
            assert bob.log.messages == {}

    run(main())
