"""TLS without sockets: wire bytes in, link bytes out, and back.

The asyncio transports keep a buffer of 256 KiB for every connection that does TLS,
and do so before it is known who connects. This keeps nothing beyond one record of
16 KiB, and lets the caller write many frames in one go.
"""

from __future__ import annotations

import contextlib
import ssl
from typing import Final, final

READ_BYTES: Final = 65_536


@final
class TlsPipe:
    """One end of a TLS connection. Errors of the peer raise `ssl.SSLError`."""

    def __init__(self, context: ssl.SSLContext, *, server_side: bool) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_side
        )
        self.ready = False  # Becomes True once, when both sides are proved.

    def advance(self, data: bytes = b"") -> bool:
        """Continue the handshake; return whether it is done."""
        if data:
            self._incoming.write(data)
        if not self.ready:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                return False
            self.ready = True
        return True

    def read(self, data: bytes = b"") -> bytes:
        """Decrypt bytes from the wire, once the handshake is done."""
        assert self.ready
        if data:
            self._incoming.write(data)
        parts: list[bytes] = []
        while self._incoming.pending or self._tls.pending():
            try:
                part = self._tls.read(READ_BYTES)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:
                break  # The peer has closed; so it does the stream below.
            if not part:
                break
            parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def write(self, data: bytes) -> None:
        """Encrypt bytes for the peer; `outgoing` has them for the wire."""
        assert self.ready
        view = memoryview(data)
        while view:
            view = view[self._tls.write(view) :]

    def outgoing(self) -> bytes:
        """Remove and return the bytes for the wire."""
        return self._outgoing.read() if self._outgoing.pending else b""

    def close(self) -> None:
        """Send a close notification, so that the end is no accident."""
        if self.ready:
            with contextlib.suppress(ssl.SSLError):
                self._tls.unwrap()  # Fails for want of the peer's answer.

    @property
    def certificate(self) -> bytes:
        """The certificate of the peer, as DER."""
        der = self.shown
        assert der is not None, "contexts are made to require one"
        return der

    @property
    def shown(self) -> bytes | None:
        """The peer's certificate, or None if the context does not require one."""
        assert self.ready
        return self._tls.getpeercert(binary_form=True)
