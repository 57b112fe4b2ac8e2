"""What strangers and bad members do to a whole node, at both of its doors.

Run: python -m tests.integration.node_attackers ADDRESS API HOME COUNT SEED

Attacks the node at this address, and its API, from so many places at once, until
killed. HOME is that of a member that turned bad: it has a grant, and talks nonsense.
"""

import asyncio
import contextlib
import os
import ssl
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

from tests.integration.direct_attackers import (
    HELLO,
    endless_handshake,
    ends,
    garbage,
    half_open,
    slow_loris,
    stranger_who_talks,
    without_certificate,
)
from tests.integration.direct_nodes import run
from tests.wire.examples import EXAMPLES

from shoal.net.direct.frames import FrameKind, framed
from shoal.net.identity.certificates import contexts
from shoal.net.identity.identity import Identity
from shoal.net.multiaddr import parse
from shoal.protocol import codec
from shoal.runtime.home import Home
from shoal.runtime.membership import shoal_membership

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
EMPTY_SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
FRAMES_PER_VISIT = 2_000
OWN_ADDRESS = "127.0.0.80"
LOW = (1 << 24) - 1  # of a header: how many bytes follow

Attack = Callable[[], Awaitable[None]]


class BadMember:
    """Has every right to be linked, and sends what no honest node would."""

    def __init__(self, address: str, home: Home, seed: int) -> None:
        identity = Identity.load(home.key)
        belongs = shoal_membership.load(home)
        assert belongs is not None
        self._address = address
        self._node = identity.node
        self._context = contexts(identity, belongs.grant).dialling
        self._random = Random(seed)
        self._good = [
            frame for message in EXAMPLES.values() for frame in codec.encode([message])
        ]

    async def fuzz(self) -> None:
        """Come up as a member does, and then send frames that are nearly right."""
        place = parse(self._address)
        reader, writer = await asyncio.open_connection(
            *(place.host, place.port),
            ssl=self._context,
            server_hostname="",
            local_addr=(OWN_ADDRESS, 0),  # Strangers crowd the door of theirs.
        )
        try:
            writer.write(HELLO)
            await reader.readexactly(int.from_bytes(await reader.readexactly(4)) & LOW)
            if place.node is not None and self._node < place.node:
                writer.write(framed(FrameKind.SELECT))
            for _ in range(FRAMES_PER_VISIT):
                writer.write(self._frame())
                await writer.drain()
                await asyncio.sleep(0)
            await ends(reader)
        finally:
            writer.transport.abort()

    def _frame(self) -> bytes:
        payload = bytearray(self._random.choice(self._good))
        for _ in range(self._random.choice((0, 0, 1, 3, 20))):
            payload[self._random.randrange(len(payload))] = self._random.randrange(256)
        frame = bytearray(framed(FrameKind.MESSAGES, bytes(payload)))
        if self._random.random() < 0.01:
            frame[self._random.randrange(4)] = self._random.randrange(256)
        return bytes(frame)


class ApiStranger:
    """Knows the port of the API, and neither its token nor its manners."""

    def __init__(self, api: str, seed: int) -> None:
        self._host, _, port = api.rpartition(":")
        self._port = int(port)
        self._random = Random(seed)

    async def garbage(self) -> None:
        """Send what is no HTTP/2."""
        await self._say(self._random.randbytes(20_000))

    async def fuzz(self) -> None:
        """Begin rightly, and go on with random frames of HTTP/2."""
        frames = [PREFACE, EMPTY_SETTINGS]
        for _ in range(200):
            body = self._random.randbytes(self._random.randrange(400))
            head = len(body).to_bytes(3, "big") + self._random.randbytes(6)
            frames.append(head + body)
        await self._say(b"".join(frames))

    async def stay(self) -> None:
        """Begin rightly, and then only hold the connection."""
        await self._say(PREFACE + EMPTY_SETTINGS, stay_s=5.0)

    async def _say(self, data: bytes, stay_s: float = 0.0) -> None:
        reader, writer = await asyncio.open_connection(self._host, self._port)
        try:
            writer.write(data)
            await writer.drain()
            await asyncio.sleep(stay_s)
            async with asyncio.timeout(5):
                await reader.read(100_000)
        finally:
            writer.transport.abort()


def attacks(address: str, api: str, home: Home, seed: int) -> list[Attack]:
    """Return all that can be done to a node."""
    member, caller = BadMember(address, home, seed), ApiStranger(api, seed)
    strangers = (
        *(garbage, half_open, slow_loris, without_certificate),
        *(stranger_who_talks, endless_handshake),
    )
    to_links = [lambda attack=attack: attack(address) for attack in strangers]
    return [*to_links, member.fuzz, caller.garbage, caller.fuzz, caller.stay]


async def attack_for_ever(attack: Attack) -> None:
    while True:
        with contextlib.suppress(OSError, RuntimeError, EOFError, ssl.SSLError):
            await attack()
        await asyncio.sleep(0.05)


async def main() -> None:
    """Attack until killed."""
    address, api, home, count, seed = sys.argv[1:]
    known = attacks(address, api, Home(Path(home)), int(seed))
    os.write(1, b"attacking\n")
    await asyncio.gather(
        *(attack_for_ever(known[n % len(known)]) for n in range(int(count)))
    )


if __name__ == "__main__":
    run(main())
