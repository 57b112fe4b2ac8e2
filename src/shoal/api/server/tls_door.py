"""The TCP entrance of the API: terminates TLS 1.3 and relays to a private socket.

gRPC for Python can neither require TLS 1.3 nor request a certificate without demanding
one; it accepts any number of connections, and reads whatever strangers send. So the
door terminates TLS itself and relays the bytes to a socket that nobody else can open.
It connects from a unique socket name, by which the server looks up the client in
`guests`. Plain text is accepted from this machine only.

A stranger is a client that has shown neither a member's certificate nor the token. The
number of strangers is limited; each has `ENTER_S` and `STRANGER_BYTES_MAX` to identify
itself, and the oldest is dropped to make room for the next.
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
from shoal.net.direct.connection_limits import ConnectionLimits, ConnectionPace, ip_of
from shoal.net.direct.tls import TlsPipe
from shoal.net.identity.certificates import read

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from shoal.model.ids import NodeId
    from shoal.net.identity.certificates import Shown

    Trouble = Callable[[Shown], str | None]
    """Returns why the holder of a certificate is not a member; None if it is."""

ENTER_S: Final = 10.0
"""Time for a client to identify itself, from its connection on."""

STRANGER_BYTES_MAX: Final = 128 << 10
"""Bytes a client may send before that: a handshake and the head of a call."""

HELD_S: Final = 2.0
"""Time to identify itself for a client that has reached that limit."""

REFUSALS_MAX: Final = 16
"""Refused calls after which a stranger is dropped."""

PER_MEMBER_MAX: Final = 32
"""Connections per member; one more drops its oldest."""

LOOK_S: Final = 0.5
"""How often connected members are checked for revocation and expiry."""

TLS_FIRST: Final = 0x16
"""The first byte of TLS; plain HTTP/2 starts with the P of its preface."""

PACE: Final = ConnectionPace(per_s=128.0, burst=1_024.0)
PACE_HERE: Final = ConnectionPace(per_s=4_096.0, burst=4_096.0)
"""Higher, since all users of the machine share the loopback address."""

_REFUSAL: Final = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
    b"This port speaks TLS 1.3 to other machines: https, or gRPC by TLS.\n"
)
"""Makes gRPC clients give up at once, and is readable for people."""

Proof = Literal["", "token", "certificate"]


@final
class Guest:
    """A client connected through the door, and the certificate it showed, if any."""

    def __init__(
        self,
        shown: Shown | None,
        *,
        is_far: bool = True,
        address: str = "",
        on_proof: Callable[[Proof], None] | None = None,
        on_refusal: Callable[[], None] | None = None,
    ) -> None:
        """Report proofs to `on_proof` and refused calls to `on_refusal`."""
        self.shown = shown
        self.is_far = is_far
        self.address = address
        self._on_proof = on_proof
        self._on_refusal = on_refusal

    def prove(self, proof: Proof) -> None:
        """Record that a call was allowed, and by which proof."""
        if self._on_proof is not None:
            self._on_proof(proof)

    def refuse(self) -> None:
        """Record that a call was refused."""
        if self._on_refusal is not None:
            self._on_refusal()


@final
class TlsDoor:
    """Listens on one or two addresses; `guests` has clients by gRPC peer name."""

    def __init__(
        self, context: ssl.SSLContext, trouble: Trouble, *, takes_plain: bool = True
    ) -> None:
        """Accept plain text from this machine if `takes_plain` is true."""
        self.context = context
        self.takes_plain = takes_plain
        self.trouble = trouble
        self.guests: dict[str, Guest] = {}
        self.inner: Path | None = None  # set before clients are accepted
        self.visits: dict[Visit, None] = {}  # oldest first
        self._strangers: ConnectionLimits[Visit] = ConnectionLimits(PACE)
        self._strangers_here: ConnectionLimits[Visit] = ConnectionLimits(PACE_HERE)
        self._servers: list[asyncio.Server] = []
        self._look: asyncio.TimerHandle | None = None

    async def open(self, host: str, port: int) -> int:
        """Bind an address and return the port; `serve` starts accepting."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: Visit(self), host, port, start_serving=False
        )
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def serve(self, inner: Path) -> None:
        """Accept clients and relay them to the server on socket `inner`."""
        self.inner = inner
        for server in self._servers:
            await server.start_serving()
        self._look_again()

    def close(self) -> None:
        """Stop listening and drop all clients."""
        if self._look is not None:
            self._look.cancel()
        for server in self._servers:
            server.close()
        for visit in list(self.visits):
            visit.end()

    def cut(self, proof: Proof) -> None:
        """Drop all clients that identified themselves by `proof`."""
        for visit in [each for each in self.visits if each.proof == proof]:
            visit.end()

    # Called by visits.

    def arrived(self, visit: Visit) -> None:
        """Record a new stranger, and drop those over the limit."""
        self.visits[visit] = None
        now = asyncio.get_running_loop().time()
        for other in self._crowd(visit).arrive(visit, visit.address, now):
            other.end()

    def known(self, visit: Visit) -> None:
        """Count a visit as identified; drop a member's oldest over the limit."""
        self._crowd(visit).leave(visit)
        if visit.member:
            same = [each for each in self.visits if each.member == visit.member]
            for oldest in same[: max(0, len(same) - PER_MEMBER_MAX)]:
                oldest.end()

    def left(self, visit: Visit) -> None:
        """Forget a visit."""
        self.visits.pop(visit, None)
        self._crowd(visit).leave(visit)

    def _crowd(self, visit: Visit) -> ConnectionLimits[Visit]:
        return self._strangers if visit.is_far else self._strangers_here

    def _look_again(self) -> None:
        """Drop members whose grant is no longer valid; repeat every `LOOK_S`."""
        for visit in [each for each in self.visits if each.shown is not None]:
            if visit.shown is not None and self.trouble(visit.shown):
                visit.void()
        loop = asyncio.get_running_loop()
        self._look = loop.call_later(LOOK_S, self._look_again)


@final
class Visit(asyncio.Protocol):
    """One client connection, and its counterpart to the server inside."""

    def __init__(self, door: TlsDoor) -> None:
        self.proof: Proof = ""
        self.shown: Shown | None = None
        self.member: NodeId | None = None  # set when its grant was verified
        self.address = ""
        self.is_far = True
        self._door = door
        self._outside: asyncio.Transport | None = None
        self._inside: asyncio.Transport | None = None
        self._pipe: TlsPipe | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._entering: asyncio.Task[None] | None = None
        self._early = b""  # received before the inside was open
        self._name = ""  # of the inside socket
        self._heard_bytes = 0
        self._refusals = 0
        self._held = False  # reading paused until identified
        self._full = False  # reading paused for the server

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register the client and start its deadline."""
        outside = cast("asyncio.Transport", transport)  # uvloop has no subclass.
        self._outside = outside
        self.address = str(outside.get_extra_info("peername")[0])
        found = ip_of(self.address)
        self.is_far = found is None or not found.is_loopback
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(ENTER_S, self.end)
        self._door.arrived(self)

    def data_received(self, data: bytes) -> None:
        """Continue the handshake, or relay the client's bytes."""
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
        """Close both halves."""
        self.end()

    def pause_writing(self) -> None:
        """Stop reading from the server while the client is slow."""
        if self._inside is not None:
            self._inside.pause_reading()

    def resume_writing(self) -> None:
        """Resume reading from the server."""
        if self._inside is not None:
            self._inside.resume_reading()

    def fill(self, *, full: bool) -> None:
        """Pause or resume the client while the server is slow."""
        self._full = full
        self._read_or_wait()

    def pass_out(self, data: bytes) -> None:
        """Relay the server's bytes to the client."""
        if self._outside is None or self._outside.is_closing():
            return
        if self._pipe is not None:
            self._pipe.write(data)
            data = self._pipe.outgoing()
        self._outside.write(data)

    def prove(self, proof: Proof) -> None:
        """Record that the client is identified, and lift a stranger's limits."""
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
        """Count a refused call; drop a stranger after `REFUSALS_MAX`."""
        self._refusals += 1
        if not self.proof and self._refusals >= REFUSALS_MAX:
            self.end()

    def void(self) -> None:
        """Drop a former member; a stranger learns why from its answer."""
        if self.member is not None:
            self.end()

    def end(self) -> None:
        """Close both halves; forget the guest before its name can be reused."""
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
        """Stop reading until the client is identified, for `HELD_S` at most."""
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
        """Open the inside connection; pause the client meanwhile."""
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
    """Return a socket bound to a unique, unguessable name, and gRPC's name of it.

    Only Linux can name sockets like this. Elsewhere certificates are not recognised,
    but the token is.
    """
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.setblocking(False)
    name = f"shoal-{secrets.token_hex(16)}"
    if sys.platform == "linux":
        made.bind(f"\0{name}")
    return made, f"unix-abstract:{name}"


@final
class _Inside(asyncio.Protocol):
    """The connection of a visit to the server inside."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit

    def data_received(self, data: bytes) -> None:
        """Relay the server's bytes to the client."""
        self._visit.pass_out(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the visit: the server hung up."""
        self._visit.end()

    def pause_writing(self) -> None:
        """Pause the client while the server is slow."""
        self._visit.fill(full=True)

    def resume_writing(self) -> None:
        """Resume the client."""
        self._visit.fill(full=False)
