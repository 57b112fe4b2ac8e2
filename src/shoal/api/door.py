"""The door for clients over TCP: TLS 1.3 outside, a private socket of the node inside.

gRPC for Python can neither insist on TLS 1.3 nor ask for a certificate without
demanding one, it takes any number of connections, and reads what strangers send. So
this ends TLS itself, and passes the bytes on to a socket that nobody else can open,
from a name by which the server knows whose connection it is. Plain text is taken from
this machine only.

A stranger is somebody who has shown neither the certificate of a member nor the token.
There are only so many of them at a time, each has a short time and few bytes to say who
it is, and the one that stands there longest makes room for the next.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import ssl
import sys
from typing import TYPE_CHECKING, Final, Literal, cast, final

from shoal.errors import ProtocolError
from shoal.net.certificates import read
from shoal.net.doors import Doors, Pace, ip_of
from shoal.net.tls import TlsPipe

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from shoal.model.ids import NodeId
    from shoal.net.certificates import Shown

    Trouble = Callable[[Shown], str | None]
    """Says why whoever showed this is no member; None if it is one."""

ENTER_S: Final = 10.0
"""How long a client has to prove who it is, from its first byte."""

STRANGER_BYTES_MAX: Final = 128 << 10
"""What a client may send before that: a handshake and the head of a call."""

HELD_S: Final = 2.0
"""How long one that has more to say waits for that to be judged."""

REFUSALS_MAX: Final = 16
"""Calls of one stranger that are refused before it is sent away."""

PER_MEMBER_MAX: Final = 32
"""Connections of one member; for one more, its oldest goes."""

LOOK_S: Final = 0.5
"""How often members that are here are held against revocations and the clock."""

TLS_FIRST: Final = 0x16
"""The first byte of TLS; plain HTTP/2 begins with the P of its preface."""

PACE: Final = Pace(per_s=128.0, burst=1_024.0)
PACE_HERE: Final = Pace(per_s=4_096.0, burst=4_096.0)
"""On loopback all users of the machine have one address."""

_REFUSAL: Final = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
    b"This port speaks TLS 1.3 to other machines: https, or gRPC by TLS.\n"
)
"""Clients of gRPC give up on it at once, and people can read it."""

Proof = Literal["", "token", "certificate"]


@final
class Guest:
    """Whoever is connected through the door, and what it showed, if anything."""

    def __init__(
        self,
        shown: Shown | None,
        *,
        is_far: bool = True,
        address: str = "",
        on_proof: Callable[[Proof], None] | None = None,
        on_refusal: Callable[[], None] | None = None,
    ) -> None:
        """Tell by `on_proof` what it proved, and by `on_refusal` of refused calls."""
        self.shown = shown
        self.is_far = is_far
        self.address = address
        self._on_proof = on_proof
        self._on_refusal = on_refusal

    def prove(self, proof: Proof) -> None:
        """Know that a call was allowed, and by what."""
        if self._on_proof is not None:
            self._on_proof(proof)

    def refuse(self) -> None:
        """Know that a call was refused."""
        if self._on_refusal is not None:
            self._on_refusal()


@final
class Door:
    """Listens in one place or two; `guests` says who came, as gRPC calls them."""

    def __init__(
        self, context: ssl.SSLContext, trouble: Trouble, *, takes_plain: bool = True
    ) -> None:
        """Take plain text from this machine too, unless `takes_plain` is false."""
        self.context = context
        self.takes_plain = takes_plain
        self.trouble = trouble
        self.guests: dict[str, Guest] = {}
        self.inner: Path | None = None  # Set before anybody can come in.
        self.visits: dict[Visit, None] = {}  # In the order of arrival.
        self._strangers: Doors[Visit] = Doors(PACE)
        self._strangers_here: Doors[Visit] = Doors(PACE_HERE)
        self._servers: list[asyncio.Server] = []
        self._look: asyncio.TimerHandle | None = None

    async def open(self, host: str, port: int) -> int:
        """Listen, and return the port; nobody gets further before `serve`."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: Visit(self), host, port, start_serving=False
        )
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def serve(self, inner: Path) -> None:
        """Let clients in, to the server on this socket."""
        self.inner = inner
        for server in self._servers:
            await server.start_serving()
        self._look_again()

    def close(self) -> None:
        """Let nobody in any more, and drop who is there."""
        if self._look is not None:
            self._look.cancel()
        for server in self._servers:
            server.close()
        for visit in list(self.visits):
            visit.end()

    def cut(self, proof: Proof) -> None:
        """Drop everybody who came in by this."""
        for visit in [each for each in self.visits if each.proof == proof]:
            visit.end()

    # What visits say.

    def arrived(self, visit: Visit) -> None:
        """Let a stranger stand here, and send away whom that is too many."""
        self.visits[visit] = None
        now = asyncio.get_running_loop().time()
        for other in self._crowd(visit).arrive(visit, visit.address, now):
            other.end()

    def known(self, visit: Visit) -> None:
        """Count somebody as a stranger no longer."""
        self._crowd(visit).leave(visit)
        if visit.member:
            same = [each for each in self.visits if each.member == visit.member]
            for oldest in same[: max(0, len(same) - PER_MEMBER_MAX)]:
                oldest.end()

    def left(self, visit: Visit) -> None:
        """Forget somebody."""
        self.visits.pop(visit, None)
        self._crowd(visit).leave(visit)

    def _crowd(self, visit: Visit) -> Doors[Visit]:
        return self._strangers if visit.is_far else self._strangers_here

    def _look_again(self) -> None:
        """Drop members whose grant holds no longer, whatever they are doing."""
        for visit in [each for each in self.visits if each.shown is not None]:
            if visit.shown is not None and self.trouble(visit.shown):
                visit.void()
        loop = asyncio.get_running_loop()
        self._look = loop.call_later(LOOK_S, self._look_again)


@final
class Visit(asyncio.Protocol):
    """One connection from outside, and its other half inside."""

    def __init__(self, door: Door) -> None:
        self.proof: Proof = ""
        self.shown: Shown | None = None
        self.member: NodeId | None = None  # once its grant was found to hold
        self.address = ""
        self.is_far = True
        self._door = door
        self._outside: asyncio.Transport | None = None
        self._inside: asyncio.Transport | None = None
        self._pipe: TlsPipe | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._entering: asyncio.Task[None] | None = None
        self._early = b""  # What came before the other half was there.
        self._name = ""  # Of the other half.
        self._heard_bytes = 0
        self._refusals = 0
        self._held = False  # Nothing is read before it is known who this is.
        self._full = False  # Nothing is read before the server has taken more.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first bytes, but not for long."""
        outside = cast("asyncio.Transport", transport)  # uvloop's is none by class.
        self._outside = outside
        self.address = str(outside.get_extra_info("peername")[0])
        found = ip_of(self.address)
        self.is_far = found is None or not found.is_loopback
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(ENTER_S, self.end)
        self._door.arrived(self)

    def data_received(self, data: bytes) -> None:
        """Go on with the handshake, or pass on what the client says."""
        assert self._outside is not None
        if self._outside.is_closing():
            return
        self._heard_bytes += len(data)
        if not self.proof and self._heard_bytes > STRANGER_BYTES_MAX:
            self._hold()
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

    def fill(self, *, full: bool) -> None:
        """Have the client wait for a slow server, or go on."""
        self._full = full
        self._read_or_wait()

    def pass_out(self, data: bytes) -> None:
        """Pass on what the server says."""
        if self._outside is None or self._outside.is_closing():
            return
        if self._pipe is not None:
            self._pipe.write(data)
            data = self._pipe.outgoing()
        self._outside.write(data)

    def prove(self, proof: Proof) -> None:
        """Know who this is; from now on it may say what it likes."""
        if self.proof:
            return
        self.proof = proof
        if proof == "certificate" and self.shown is not None:
            self.member = self.shown.node
        if self._deadline is not None:
            self._deadline.cancel()
        self._door.known(self)
        self._held = False
        self._read_or_wait()

    def refuse(self) -> None:
        """Know that a call was refused; after many of them, hang up."""
        self._refusals += 1
        if not self.proof and self._refusals >= REFUSALS_MAX:
            self.end()

    def void(self) -> None:
        """Drop a member that is none any more; a stranger hears why in its answer."""
        if self.member is not None:
            self.end()

    def end(self) -> None:
        """Close both halves; the guest is forgotten before its name is free again."""
        self._door.left(self)
        if self._deadline is not None:
            self._deadline.cancel()
        if self._entering is not None:
            self._entering.cancel()
        if self._inside is not None:
            self._door.guests.pop(self._name, None)
            self._inside.close()
        if self._outside is not None and not self._outside.is_closing():
            if self._pipe is not None:
                self._pipe.close()
                with contextlib.suppress(ssl.SSLError):
                    self._outside.write(self._pipe.outgoing())
            self._outside.close()

    def _hold(self) -> None:
        """Read no more before it is known who this is."""
        if not self._held:
            self._held = True
            if self._deadline is not None:
                self._deadline.cancel()
            loop = asyncio.get_running_loop()
            self._deadline = loop.call_later(HELD_S, self.end)
        self._read_or_wait()

    def _begin(self, data: bytes) -> None:
        assert self._outside is not None
        if data[0] == TLS_FIRST:
            self._pipe = TlsPipe(self._door.context, server_side=True)
            self._shake_hands(data)
        elif not self.is_far and self._door.takes_plain:
            self._enter(data)
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
            self.shown = None if der is None else read(der)
            if self.shown is not None and self._door.trouble(self.shown) is None:
                self.prove("certificate")
            self._enter(self._pipe.read())

    def _enter(self, early: bytes) -> None:
        """Open the other half; the client waits meanwhile."""
        self._early = early
        self.fill(full=True)
        self._entering = asyncio.ensure_future(self._connect())

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        assert self._door.inner is not None, "it is open"
        try:
            named, self._name = _named_socket()
        except OSError:
            self.end()
            return
        try:
            named.connect(str(self._door.inner))
            inside, _ = await loop.create_unix_connection(
                lambda: _Inside(self), sock=named
            )
        except OSError:
            named.close()
            self.end()
            return
        self._inside = inside
        self._door.guests[self._name] = Guest(
            self.shown,
            is_far=self.is_far,
            address=self.address,
            on_proof=self.prove,
            on_refusal=self.refuse,
        )
        self._pass_in(self._early)
        self._early = b""
        self.fill(full=False)

    def _pass_in(self, data: bytes) -> None:
        if self._inside is None:
            self._early += data
        elif data:
            self._inside.write(data)

    def _read_or_wait(self) -> None:
        if self._outside is None or self._outside.is_closing():
            return
        if self._held or self._full:
            self._outside.pause_reading()
        else:
            self._outside.resume_reading()


def _named_socket() -> tuple[socket.socket, str]:
    """Return a socket with a name that nobody else has, and what gRPC calls that.

    Nobody can guess it either. Where sockets cannot be named so, certificates are not
    recognised; the token still is.
    """
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.setblocking(False)
    name = f"shoal-{secrets.token_hex(16)}"
    if sys.platform == "linux":
        made.bind(f"\0{name}")
    return made, f"unix-abstract:{name}"


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
        self._visit.fill(full=True)

    def resume_writing(self) -> None:
        """Go on."""
        self._visit.fill(full=False)
