"""One TCP connection: TLS and frames over an asyncio transport.

A connection knows bytes and the proved identity of the other end; its owner knows what
frames mean. Nothing is raised into the event loop: a connection that fails ends, and
reports the reason once.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import TYPE_CHECKING, Final, Protocol, cast, final

from shoal.errors import ProtocolError
from shoal.net.direct.frames import Frame, FrameReader, closing
from shoal.net.direct.tls import TlsPipe
from shoal.net.identity import certificates

if TYPE_CHECKING:
    from shoal.model.ids import NodeId
    from shoal.net.identity.certificates import Shown

FIRST_FRAME_BYTES_MAX: Final = 8_192
"""Limit for a frame of a peer that is not admitted yet."""

HANDSHAKE_BYTES_MAX: Final = 65_536
WRITE_BYTES_HIGH: Final = 262_144
"""Unsent bytes beyond which a connection is not writable."""

LINGER_S: Final = 1.0
"""How long the final frames may take to leave."""


class ConnectionOwner(Protocol):
    """Owner of a connection; told `ended` and then `gone`, once each."""

    def arrived(self, connection: Connection) -> None:
        """Note a new connection, whose peer is not proved yet."""
        ...

    def proved(self, connection: Connection, shown: Shown) -> None:
        """Note the proved identity of the peer."""
        ...

    def took(self, connection: Connection, frame: Frame) -> None:
        """Handle a frame from the peer."""
        ...

    def drained(self, connection: Connection) -> None:
        """Note that the connection is writable again."""
        ...

    def ended(self, connection: Connection, why: str, kind: str) -> None:
        """Note that the connection ended; `kind` names the counter."""
        ...

    def gone(self, connection: Connection) -> None:
        """Note that the final frames have left and the socket is closed."""
        ...


@final
class Connection(asyncio.Protocol):
    """Moves frames between its owner and the peer."""

    def __init__(
        self,
        owner: ConnectionOwner,
        context: ssl.SSLContext,
        *,
        expects: NodeId | None = None,
    ) -> None:
        """Accept, or dial if `context` is a client context, and expect peer `expects`.

        Only the dialling side may expect a certain peer.
        """
        self.dialled = context.protocol == ssl.PROTOCOL_TLS_CLIENT
        self.expects = expects
        self.address = ""
        self.over = False
        self.writable = True
        self.bytes_read = 0  # as they were on the wire
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
        """Write whole frames at once."""
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
        """Bytes that the kernel has not taken yet."""
        return self._transport.get_write_buffer_size() if self._transport else 0

    @property
    def is_amid_frame(self) -> bool:
        """Whether the peer has begun a frame that is not here as a whole."""
        return self._reader.is_amid

    def close(self, reason: str, kind: str) -> None:
        """Send the reason and close. Earlier frames still leave, within `LINGER_S`."""
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
        """Close at once, without a reason."""
        if not self.over:
            self.over = True
            if self._transport is not None:
                self._transport.abort()
            self._owner.ended(self, reason, kind)

    def hang_up(self) -> None:
        """Drop even the final frames of a connection that has ended."""
        if self._transport is not None:
            self._transport.abort()

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the handshake; the dialling side speaks first."""
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
        """Handle bytes from the wire."""
        if self.over:
            return
        self.bytes_read += len(data)
        try:
            self._take(data)
        except ssl.SSLError as error:
            self._flush()  # The alert that tells the other side.
            self._break(f"tls: {error.reason or 'failed'}", "tls")
        except ProtocolError as error:
            self.close(str(error), error.kind)

    def eof_received(self) -> None:
        """Close the transport: half-open connections are not used."""

    def connection_lost(self, exc: Exception | None) -> None:
        """End because the other side did."""
        if self._linger is not None:
            self._linger.cancel()
        if not self.over:
            self.over = True
            self._owner.ended(self, "the connection broke", "broken")
        self._owner.gone(self)

    def pause_writing(self) -> None:
        """Note that the peer reads more slowly than we write."""
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
        """Continue the handshake; return whether frames may follow."""
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
