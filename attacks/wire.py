"""A link to a node, spoken by hand: it sends whatever an attacker wants.

Messages are plain dicts here, so that values leave which no honest node can make.
"""

from __future__ import annotations

import contextlib
import queue
import select
import socket
import ssl
import threading
import time
from typing import TYPE_CHECKING, Any, Self

import msgspec

from shoal.net.direct.frames import FrameKind, framed
from shoal.net.identity.certificates import contexts
from shoal.net.multiaddr import parse

if TYPE_CHECKING:
    from shoal.net.identity.identity import Identity
    from shoal.protocol.messages import Grant

Said = dict[str, Any]
TIMEOUT_S = 10.0


class CutOff(Exception):  # noqa: N818
    """The node has ended the link; the text is what it said at last."""


class Link:
    """One TLS connection to a node, as a member or as a stranger."""

    def __init__(
        self,
        address: str,
        identity: Identity,
        grant: Grant | None,
        *,
        name: str = "mallory",
        source: str = "",
        greets: bool = True,
    ) -> None:
        place = parse(address)
        assert place.node is not None
        context = contexts(identity, grant).dialling
        raw = socket.create_connection(
            (place.host, place.port), TIMEOUT_S, (source, 0) if source else None
        )
        self._tls = context.wrap_socket(raw)
        self._tls.setblocking(False)  # OpenSSL takes one thread at a time.
        self._heard: queue.Queue[Said | None] = queue.Queue()
        self._late: list[Said] = []
        self.last_words = ""
        self.over = threading.Event()
        self._ponged = threading.Event()
        self._turn = threading.Lock()
        hello = {"type": "hello", "versions": [1, 1], "generation": 1, "name": name}
        if greets:  # Who asks to be let in says that first.
            self.say(hello)
        self._selects = identity.node < place.node
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the link as a node does that leaves, so that its leases end too."""
        if not self.over.is_set():
            self.say({"type": "goodbye"})
            self.over.wait(0.05)
        self.over.set()
        self._reader.join(2.0)
        self._tls.close()

    def raw(self, data: bytes) -> None:
        """Send bytes that may be no frame at all; who does not read is waited for."""
        until = time.monotonic() + TIMEOUT_S
        view = memoryview(data)
        while view and not self.over.is_set() and time.monotonic() < until:
            try:
                with self._turn:
                    view = view[self._tls.send(view[:16_384]) :]
            except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
                select.select([], [self._tls], [], 0.05)
            except OSError:
                return

    def say(self, *messages: Said) -> None:
        """Send one frame of messages."""
        self.raw(framed(FrameKind.MESSAGES, msgspec.msgpack.encode(messages)))

    def hear(self, *kinds: str, within_s: float = TIMEOUT_S) -> Said:
        """Return the next message of these kinds; others are kept for later."""
        for kept in self._late:
            if kept["type"] in kinds:
                self._late.remove(kept)
                return kept
        until = time.monotonic() + within_s
        while True:
            left = until - time.monotonic()
            try:
                message = self._heard.get(timeout=max(left, 0.001))
            except queue.Empty:
                raise TimeoutError(f"no {' or '.join(kinds)}: {self._late}") from None
            if message is None:
                self._heard.put(None)
                raise CutOff(self.last_words)
            if message["type"] in kinds:
                return message
            self._late.append(message)

    def settle(self) -> None:
        """Wait until the node has read all that was said, or has ended the link."""
        self._ponged.clear()
        self.raw(framed(FrameKind.PING, bytes(8)))
        until = time.monotonic() + TIMEOUT_S
        while not (self._ponged.wait(0.05) or self.over.is_set()):
            if time.monotonic() > until:
                raise TimeoutError("no answer to a ping")

    def all_heard(self, kind: str, for_s: float) -> list[Said]:
        """Return every message of a kind that comes until then."""
        found: list[Said] = []
        until = time.monotonic() + for_s
        with contextlib.suppress(TimeoutError, CutOff):
            while (left := until - time.monotonic()) > 0:
                found.append(self.hear(kind, within_s=left))
        return found

    def _read(self) -> None:
        selected = False
        try:
            while True:
                head = self._exactly(4)
                body = self._exactly(int.from_bytes(head[1:], "big"))
                kind = FrameKind(head[0])
                if kind is FrameKind.CLOSE:
                    self.last_words = body.decode(errors="replace")
                    break
                if kind is FrameKind.PING:
                    self.raw(framed(FrameKind.PONG, body))
                if kind is FrameKind.PONG:
                    self._ponged.set()
                if kind is FrameKind.MESSAGES:
                    if self._selects and not selected:
                        self.raw(framed(FrameKind.SELECT))
                        selected = True
                    for message in msgspec.msgpack.decode(body):
                        self._heard.put(message)
        except (OSError, EOFError, ssl.SSLError, ValueError):
            pass
        self.over.set()
        self._heard.put(None)

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            try:
                with self._turn:
                    piece = self._tls.recv(count - len(data))
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                if self.over.is_set():
                    raise EOFError from None
                select.select([self._tls], [], [], 0.1)
                continue
            if not piece:
                raise EOFError
            data += piece
        return data
