"""Ask a node on the local network for admission: one message, one answer."""

from __future__ import annotations

import asyncio
import functools
import socket
from typing import TYPE_CHECKING, Final, final

from shoal.errors import ProtocolError, ShoalError
from shoal.net import multiaddr
from shoal.net.direct.connection import Connection
from shoal.net.direct.dialler import Endpoint, race, resolve
from shoal.net.direct.frames import Frame, FrameKind, framed, reason_of
from shoal.net.identity.certificates import contexts
from shoal.protocol import codec
from shoal.protocol.admission import AdmissionHeard, AdmissionWanted
from shoal.protocol.limits import FRAME_BYTES_MAX
from shoal.protocol.messages import Refusal, Welcome

if TYPE_CHECKING:
    from shoal.net.identity.certificates import Shown
    from shoal.net.identity.identity import Identity
    from shoal.net.joining.lan_discovery import Near

KNOCK_S: Final = 8.0
CONNECT_S: Final = 3.0

Answer = Welcome | Refusal | AdmissionHeard


async def knock(identity: Identity, near: Near, wanted: AdmissionWanted) -> Answer:
    """Ask once; raise `ShoalError` if the node cannot be reached, or is another."""
    context = contexts(identity, None).dialling
    answers: list[Answer] = []

    async def ask(place: Endpoint) -> None:
        exchange = _Exchange(wanted)
        connection = Connection(exchange, context, expects=near.node)
        sock = socket.socket(place.family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            loop = asyncio.get_running_loop()
            async with asyncio.timeout(CONNECT_S):
                await loop.sock_connect(sock, (place.host, place.port))
            await loop.create_connection(lambda: connection, sock=sock)
            answer = await exchange.answer
        except TimeoutError:
            raise ShoalError(f"{place.host} does not answer") from None
        except BaseException:
            connection.abort("asking stopped", "stopped")
            sock.close()
            raise
        connection.close("thank you", "done")
        if isinstance(answer, str):
            raise ShoalError(f"{place.host} port {place.port}", because=answer)
        answers.append(answer)

    try:
        async with asyncio.timeout(KNOCK_S):
            places = await resolve([multiaddr.parse(a) for a in near.addresses])
            await race([functools.partial(ask, place) for place in places])
    except TimeoutError:
        raise ShoalError("no answer", because=f"not within {KNOCK_S:g} s") from None
    return answers[0]


@final
class _Exchange:
    """The newcomer's end of one connection."""

    def __init__(self, wanted: AdmissionWanted) -> None:
        self.answer: asyncio.Future[Answer | str] = (
            asyncio.get_running_loop().create_future()
        )
        self._wanted = wanted

    def arrived(self, connection: Connection) -> None:
        """Wait for the proof."""

    def proved(self, connection: Connection, shown: Shown) -> None:
        """Ask the node whose key was announced, and no other."""
        if shown.node != connection.expects:
            connection.close("another node was meant", "wrong id")
            return
        connection.widen(FRAME_BYTES_MAX)
        connection.send(framed(FrameKind.MESSAGES, codec.encode([self._wanted])[0]))

    def took(self, connection: Connection, frame: Frame) -> None:
        """Handle the answer."""
        if frame.kind == FrameKind.CLOSE:
            connection.abort(f"it said: {reason_of(frame.payload)}", "closed by peer")
            return
        if frame.kind != FrameKind.MESSAGES:
            raise ProtocolError("a frame that nobody asked for")
        for message in codec.decode(frame.payload):
            if isinstance(message, Welcome | Refusal | AdmissionHeard):
                self._settle(message)

    def drained(self, connection: Connection) -> None:
        """Do nothing: there is nothing more to send."""

    def ended(self, connection: Connection, why: str, kind: str) -> None:
        """Give up, if there was no answer."""
        self._settle(why)

    def gone(self, connection: Connection) -> None:
        """Be done."""

    def _settle(self, answer: Answer | str) -> None:
        if not self.answer.done():
            self.answer.set_result(answer)
