"""The door for clients on other machines: TLS 1.3 outside, the node's own port inside.

gRPC for Python can neither insist on TLS 1.3 nor ask for a certificate without
demanding one. So this ends TLS itself, and passes the bytes on to the port of the node
on loopback, from a port of its own, by which the server knows whose connection it is.
Plain text is passed on for this machine only, as it would be without a door.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import TYPE_CHECKING, Final, NamedTuple, cast, final

from shoal.errors import ProtocolError, ShoalError
from shoal.net.certificates import read
from shoal.net.doors import ip_of
from shoal.net.tls import TlsPipe

if TYPE_CHECKING:
    from shoal.net.certificates import Shown

VISITS_MAX: Final = 256
"""Connections at one time; another is closed at once."""

ENTER_S: Final = 10.0
"""How long a client has to prove who it is."""

TLS_FIRST: Final = 0x16
"""The first byte of TLS; plain HTTP/2 begins with the P of its preface."""

INNER_HOST: Final = "127.0.0.1"

_REFUSAL: Final = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
    b"This port speaks TLS 1.3 to other machines.\n"
)
"""Clients of gRPC give up on it at once, and people can read it."""


class Guest(NamedTuple):
    """Whoever is connected through the door, and what it showed, if anything."""

    shown: Shown | None


@final
class Door:
    """Listens for other machines; `guests` says who came, by its port inside."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.context = context
        self.guests: dict[int, Guest] = {}
        self.inner_port = 0  # Set before anybody can come in.
        self.visits: set[Visit] = set()
        self._server: asyncio.Server | None = None

    async def open(self, host: str, port: int) -> int:
        """Listen, and return the port; nobody gets further before `serve`."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                lambda: Visit(self), host, port, start_serving=False
            )
        except OSError as error:
            raise ShoalError(
                f"cannot listen on {host}:{port} for clients of other machines",
                because=error.strerror or str(error),
                hint="name another address or port: --api HOST:PORT",
            ) from None
        return int(self._server.sockets[0].getsockname()[1])

    async def serve(self, inner_port: int) -> None:
        """Let clients in, to the server on this port of loopback."""
        self.inner_port = inner_port
        assert self._server is not None, "it is open"
        await self._server.start_serving()

    def close(self) -> None:
        """Let nobody in any more, and drop who is there."""
        if self._server is not None:
            self._server.close()
        for visit in list(self.visits):
            visit.end()


@final
class Visit(asyncio.Protocol):
    """One connection from outside, and its other half inside."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._outside: asyncio.Transport | None = None
        self._inside: asyncio.Transport | None = None
        self._pipe: TlsPipe | None = None
        self._entering: asyncio.Task[None] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._early = b""  # What came before the other half was there.
        self._port = 0  # Of the other half.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first bytes, but not for long."""
        outside = cast("asyncio.Transport", transport)  # uvloop's is none by class.
        self._outside = outside
        if len(self._door.visits) >= VISITS_MAX:
            outside.abort()
            return
        self._door.visits.add(self)
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(ENTER_S, self.end)

    def data_received(self, data: bytes) -> None:
        """Go on with the handshake, or pass on what the client says."""
        assert self._outside is not None
        try:
            if self._pipe is None and self._entering is None:
                self._begin(data)
            elif self._pipe is None:
                self._pass_in(data)
            elif self._pipe.ready:
                self._pass_in(self._pipe.read(data))
            else:
                self._shake_hands(data)
        except (ssl.SSLError, ProtocolError):
            if self._pipe is not None:
                self._outside.write(self._pipe.outgoing())  # The alert says why.
            self.end()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the other half too."""
        self.end()

    def pause_writing(self) -> None:
        """Have the server wait for a slow client."""
        if self._inside is not None:
            self._inside.pause_reading()

    def resume_writing(self) -> None:
        """Go on."""
        if self._inside is not None:
            self._inside.resume_reading()

    def pause_reading(self) -> None:
        """Have the client wait for a slow server."""
        if self._outside is not None:
            self._outside.pause_reading()

    def resume_reading(self) -> None:
        """Go on."""
        if self._outside is not None:
            self._outside.resume_reading()

    def pass_out(self, data: bytes) -> None:
        """Pass on what the server says."""
        if self._outside is None or self._outside.is_closing():
            return
        if self._pipe is not None:
            self._pipe.write(data)
            data = self._pipe.outgoing()
        self._outside.write(data)

    def end(self) -> None:
        """Close both halves; the guest is forgotten before its port is free again."""
        self._door.visits.discard(self)
        if self._deadline is not None:
            self._deadline.cancel()
        if self._entering is not None:
            self._entering.cancel()
        if self._inside is not None:
            self._door.guests.pop(self._port, None)
            self._inside.close()
        if self._outside is not None and not self._outside.is_closing():
            if self._pipe is not None:
                self._pipe.close()
                with contextlib.suppress(ssl.SSLError):
                    self._outside.write(self._pipe.outgoing())
            self._outside.close()

    def _begin(self, data: bytes) -> None:
        assert self._outside is not None
        if data[0] == TLS_FIRST:
            self._pipe = TlsPipe(self._door.context, server_side=True)
            self._shake_hands(data)
        elif _is_here(self._outside):
            self._enter(None, data)
        else:
            self._outside.write(_REFUSAL)
            self.end()

    def _shake_hands(self, data: bytes) -> None:
        assert self._outside is not None
        assert self._pipe is not None
        is_done = self._pipe.advance(data)
        self._outside.write(self._pipe.outgoing())
        if is_done:
            der = self._pipe.shown
            guest = Guest(None if der is None else read(der))
            self._enter(guest, self._pipe.read())

    def _enter(self, guest: Guest | None, early: bytes) -> None:
        """Open the other half; the client waits meanwhile."""
        self._early = early
        self.pause_reading()
        assert self._deadline is not None, "it was made"
        self._deadline.cancel()
        self._entering = asyncio.ensure_future(self._connect(guest))

    async def _connect(self, guest: Guest | None) -> None:
        loop = asyncio.get_running_loop()
        try:
            inside, _ = await loop.create_connection(
                lambda: _Inside(self), INNER_HOST, self._door.inner_port
            )
        except OSError:
            self.end()
            return
        self._inside = inside
        self._port = int(inside.get_extra_info("sockname")[1])
        if guest is not None:
            self._door.guests[self._port] = guest
        self._pass_in(self._early)
        self._early = b""
        self.resume_reading()

    def _pass_in(self, data: bytes) -> None:
        if self._inside is None:
            self._early += data
        elif data:
            self._inside.write(data)


@final
class _Inside(asyncio.Protocol):
    """The half of a visit that the server sees."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit

    def data_received(self, data: bytes) -> None:
        """Pass it on."""
        self._visit.pass_out(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the visit: the server has."""
        self._visit.end()

    def pause_writing(self) -> None:
        """Have the client wait."""
        self._visit.pause_reading()

    def resume_writing(self) -> None:
        """Go on."""
        self._visit.resume_reading()


def _is_here(transport: asyncio.Transport) -> bool:
    found = ip_of(str(transport.get_extra_info("peername")[0]))
    return found is not None and found.is_loopback
