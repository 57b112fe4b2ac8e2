"""What strangers and bad members do to a node, with plain tools and no code of ours.

Run: python -m tests.integration.direct_attackers ADDRESS COUNT

Attacks the node at this address from so many places at once, until killed.
"""

import asyncio
import contextlib
import itertools
import os
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable

from tests.integration.direct_nodes import run
from tests.unit.net.shoals import granted, identity

from shoal.net.direct.frames import FrameKind, framed
from shoal.net.identity.certificates import contexts
from shoal.net.multiaddr import parse
from shoal.protocol import codec
from shoal.protocol.messages import Hello

HELLO = framed(FrameKind.MESSAGES, codec.encode([Hello()])[0])
SOURCES = itertools.cycle(range(66, 70))
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]
MEMBER = identity(90)
MEMBERS = contexts(MEMBER, granted(MEMBER.node)).dialling
STRANGERS = contexts(identity(91), None).dialling


@contextlib.asynccontextmanager
async def dialled(
    address: str, context: ssl.SSLContext | None = None
) -> AsyncIterator[Stream]:
    """Connect to a node with plain tools, from one of a few hostile addresses."""
    place = parse(address)
    source = f"127.0.0.{next(SOURCES)}"
    reader, writer = await asyncio.open_connection(
        *(place.host, place.port),
        ssl=context,
        server_hostname="" if context else None,
        local_addr=(source, 0),
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


async def garbage(address: str) -> None:
    async with dialled(address) as (reader, writer):
        writer.write(os.urandom(2_000))
        await ends(reader)


async def half_open(address: str) -> None:
    async with dialled(address) as (reader, _):
        await ends(reader)


async def slow_loris(address: str) -> None:
    async with dialled(address) as (_, writer):
        for byte in b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 20:
            writer.write(bytes((byte,)))
            await asyncio.sleep(0.2)


async def without_certificate(address: str) -> None:
    bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    bare.check_hostname = False
    bare.verify_mode = ssl.CERT_NONE
    async with dialled(address, bare) as (reader, writer):
        writer.write(HELLO)
        await ends(reader)


async def huge_first_frame(address: str) -> None:
    async with dialled(address, MEMBERS) as (reader, writer):
        writer.write(b"\x00\x0f\xff\xff" + bytes(9_000))
        await ends(reader)


async def stranger_who_talks(address: str) -> None:
    async with dialled(address, STRANGERS) as (reader, writer):
        writer.write(HELLO * 100)
        await ends(reader)


async def endless_handshake(address: str) -> None:
    async with dialled(address) as (reader, writer):
        # A client hello that is cut into records of one byte, and never ends.
        writer.write(b"\x16\x03\x01\x00\x01\x01" * 20_000)
        await ends(reader)


ATTACKS: list[Callable[[str], Awaitable[None]]] = [
    garbage,
    half_open,
    slow_loris,
    without_certificate,
    huge_first_frame,
    stranger_who_talks,
    endless_handshake,
]


async def attack_for_ever(number: int, address: str) -> None:
    attack = ATTACKS[number % len(ATTACKS)]
    while True:
        with contextlib.suppress(OSError, RuntimeError):
            await attack(address)
        await asyncio.sleep(0.05)


async def main() -> None:
    """Attack until killed."""
    address, count = sys.argv[1], int(sys.argv[2])
    await asyncio.gather(*(attack_for_ever(n, address) for n in range(count)))


if __name__ == "__main__":
    run(main())
