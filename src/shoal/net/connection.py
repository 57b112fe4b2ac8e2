"""One TCP connection: TLS and frames over an asyncio transport.

A connection knows bytes, and who proved to be at the other end. What the frames mean
is for its owner. Whatever arrives, nothing is raised into the event loop: a
connection that goes wrong ends, and says why, once.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import TYPE_CHECKING, Final, Protocol, cast, final

from shoal.errors import ProtocolError
from shoal.net import certificates
from shoal.net.frames import Frame, FrameReader, closing
from shoal.net.tls import TlsPipe

if TYPE_CHECKING:
    from shoal.model.ids import NodeId
    from shoal.net.certificates import Shown

FIRST_FRAME_BYTES_MAX: Final = 8_192
"""A frame of somebody who is not admitted yet."""

HANDSHAKE_BYTES_MAX: Final = 65_536
WRITE_BYTES_HIGH: Final = 262_144
"""Bytes on their way to the kernel, beyond which a connection is not writable."""

LINGER_S: Final = 1.0
"""How long the last words may take to leave."""


class Owner(Protocol):
    """Is told what happens on a connection; `ended` and then `gone`, once each."""

    def arrived(self, connection: Connection) -> None:
        """Note that there is a connection, with nobody proved yet."""
        ...

    def proved(self, connection: Connection, shown: Shown) -> None:
        """Note who proved to be at the other end."""
        ...

    def took(self, connection: Connection, frame: Frame) -> None:
        """Take a frame of whoever is at the other end."""
        ...

    def drained(self, connection: Connection) -> None:
        """Note that the connection is writable again."""
        ...

    def ended(self, connection: Connection, why: str, kind: str) -> None:
        """Note that it is over; `kind` is what to count it under."""
        ...

    def gone(self, connection: Connection) -> None:
        """Note that the last words have left, and the socket is closed."""
        ...


@final
class Connection(asyncio.Protocol):
    """Moves frames between an owner and whoever is at the other end."""

    def __init__(
        self, owner: Owner, context: ssl.SSLContext, *, expects: NodeId | None = None
    ) -> None:
        """Accept, or dial if `context` is for that; `expects` says who should answer.

        Only who dials may expect somebody.
        """
        self.dialled = context.protocol == ssl.PROTOCOL_TLS_CLIENT
        self.expects = expects
        self.address = ""
        self.over = False
        self.writable = True
        self._owner = owner
        self._pipe = TlsPipe(context, server_side=not self.dialled)
        self._reader = FrameReader(FIRST_FRAME_BYTES_MAX)
        self._shaken_bytes = 0
        self._transport: asyncio.Transport | None = None
        self._linger: asyncio.TimerHandle | None = None

    def widen(self, frame_bytes_max: int) -> None:
        """Take frames of messages up to this size from now on."""
        self._reader.bytes_max = frame_bytes_max

    def send(self, *frames: bytes) -> None:
        """Write whole frames, in one go."""
        if self.over:
            return
        try:
            self._pipe.write(b"".join(frames))
        except ssl.SSLError as error:
            self._break(f"tls: {error.reason or 'failed'}", "tls")
        else:
            self._flush()

    @property
    def unsent_bytes(self) -> int:
        """How much waits for the kernel to take it."""
        return self._transport.get_write_buffer_size() if self._transport else 0

    def close(self, reason: str, kind: str) -> None:
        """Say why, and end. What was sent before still leaves, within `LINGER_S`."""
        if self.over:
            return
        self.over = True
        if self._pipe.ready:
            with contextlib.suppress(ssl.SSLError):
                self._pipe.write(closing(reason))
                self._pipe.close()
        self._flush()
        transport = self._transport
        if transport is not None and not transport.is_closing():
            # Not closed at once: unread bytes would make that a reset, which can
            # overtake our last words.
            with contextlib.suppress(RuntimeError, OSError):
                transport.write_eof()
            loop = asyncio.get_running_loop()
            self._linger = loop.call_later(LINGER_S, transport.abort)
        self._owner.ended(self, reason, kind)

    def abort(self, reason: str, kind: str) -> None:
        """End at once, without a word."""
        if not self.over:
            self.over = True
            if self._transport is not None:
                self._transport.abort()
            self._owner.ended(self, reason, kind)

    def hang_up(self) -> None:
        """End even the last words of a connection that is over."""
        if self._transport is not None:
            self._transport.abort()

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin; who dials speaks first."""
        self._transport = cast("asyncio.Transport", transport)  # TCP, both ways.
        if self.over:  # Given up before it came up.
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(high=WRITE_BYTES_HIGH)
        peer: tuple[object, ...] | None = transport.get_extra_info("peername")
        self.address = str(peer[0]) if peer else ""
        self._owner.arrived(self)
        if self.dialled and not self.over:
            self._pipe.advance()
            self._flush()

    def data_received(self, data: bytes) -> None:
        """Take bytes of the wire."""
        if self.over:
            return
        try:
            self._take(data)
        except ssl.SSLError as error:
            self._flush()  # The alert that tells the other side.
            self._break(f"tls: {error.reason or 'failed'}", "tls")
        except ProtocolError as error:
            self.close(str(error), error.kind)

    def eof_received(self) -> None:
        """Let the transport close: nobody goes on talking to half a connection."""

    def connection_lost(self, exc: Exception | None) -> None:
        """End, if the other side did so."""
        if self._linger is not None:
            self._linger.cancel()
        if not self.over:
            self.over = True
            self._owner.ended(self, "the connection broke", "broken")
        self._owner.gone(self)

    def pause_writing(self) -> None:
        """Note that the other side takes less than it is sent."""
        self.writable = False

    def resume_writing(self) -> None:
        """Note that it caught up."""
        self.writable = True
        if not self.over:
            self._owner.drained(self)

    def _take(self, data: bytes) -> None:
        if not self._pipe.ready:
            if not self._shake(data):
                return
            data = b""
        for frame in self._reader.feed(self._pipe.read(data)):
            self._owner.took(self, frame)
            if self.over:
                return
        self._flush()  # TLS answers a change of keys by itself.

    def _shake(self, data: bytes) -> bool:
        """Go on with the handshake; return whether there may be frames now."""
        self._shaken_bytes += len(data)
        ready = self._pipe.advance(data)
        self._flush()
        if self._shaken_bytes > HANDSHAKE_BYTES_MAX:
            raise ProtocolError("an endless handshake", kind="oversized")
        if ready:
            self._owner.proved(self, certificates.read(self._pipe.certificate))
        return ready and not self.over

    def _flush(self) -> None:
        data = self._pipe.outgoing()
        assert self._transport is not None
        if data and not self._transport.is_closing():
            # A transport of uvloop that broke in this turn has not told us yet.
            with contextlib.suppress(RuntimeError):
                self._transport.write(data)

    def _break(self, reason: str, kind: str) -> None:
        self.over = True
        assert self._transport is not None
        self._transport.close()
        self._owner.ended(self, reason, kind)
