"""A page for Prometheus: `GET /metrics` over HTTP, and nothing else.

On loopback it tells figures to everybody; to other machines by TLS, for the token.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
from typing import TYPE_CHECKING, Final, final

from shoal.api.far_pages import FarPage, is_loopback, page_key
from shoal.api.tokens import secret_of
from shoal.api.whereabouts import socket_path
from shoal.errors import ShoalError

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.api.far_pages import Find
    from shoal.runtime.node import Node

REQUEST_BYTES_MAX: Final = 8_192
REQUEST_S: Final = 5.0
CONNECTIONS_MAX: Final = 16
SUFFIX: Final = ".figures"
TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


@final
class MetricsPage:
    """Answers this machine in plain HTTP, and others by TLS if they show the token."""

    def __init__(self, text: Callable[[], str], node: Node | None = None) -> None:
        """Tell `text`; of `node` is the key that other machines know it by."""
        self._text = text
        self._node = node
        self._token = ""
        self._server: asyncio.Server | None = None
        self._far: FarPage | None = None
        self._open: dict[asyncio.Task[None], None] = {}  # In the order of arrival.

    async def start(self, host: str, port: int, token: str = "") -> int:
        """Listen; return the port."""
        self._token = token
        try:
            if self._node is not None and not is_loopback(host):
                key = page_key(self._node.home, self._node.identity, host)
                inner = socket_path(self._node.home).with_suffix(SUFFIX)
                self._far = FarPage(key.tls, inner, self._came)
                return await self._far.open(host, port)
            self._server = await asyncio.start_server(
                lambda reader, writer: self._came(reader, writer, _unknown),
                host,
                port,
                limit=REQUEST_BYTES_MAX,
            )
        except OSError as error:
            raise ShoalError(
                f"cannot listen on {host}:{port} for metrics",
                because=error.strerror or str(error),
                hint="name another address with --metrics HOST:PORT",
            ) from error
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    def renew(self, token: str) -> None:
        """Ask other machines for this token from now on."""
        self._token = token

    async def stop(self) -> None:
        """Listen no more."""
        if self._far is not None:
            self._far.close()
        if self._server is not None:
            self._server.close()

    def _came(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, find: Find
    ) -> None:
        """Serve one more; if that is too many, the one that came first goes."""
        del find  # One answer is all that a connection gets, and soon.
        visit = asyncio.ensure_future(self._serve(reader, writer))
        self._open[visit] = None
        visit.add_done_callback(lambda done: self._open.pop(done, None))
        if len(self._open) > CONNECTIONS_MAX:
            next(iter(self._open)).cancel()

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            async with asyncio.timeout(REQUEST_S):
                await self._answer(reader, writer)
        except (TimeoutError, ConnectionError, ValueError, EOFError):
            pass  # Whoever it was does not speak HTTP, or is gone.
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    def _may(self, head: bytes) -> bool:
        """Whether a request may be answered: those of other machines need the token."""
        if self._far is None:
            return True
        secret = secret_of(self._token).encode()
        for line in head.split(b"\r\n")[1:]:
            name, _, value = line.partition(b":")
            kind, _, shown = value.strip().partition(b" ")
            if name.strip().lower() == b"authorization" and kind == b"Bearer":
                told = secret_of(shown.decode("latin-1")).encode()
                return hmac.compare_digest(told, secret)
        return False

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        method, path, *_ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        status, body = "404 Not Found", "the page is /metrics\n"
        if path.partition("?")[0] == "/metrics":
            status, body = "200 OK", self._text()
            if method not in ("GET", "HEAD"):
                status, body = "405 Method Not Allowed", "GET only\n"
        if not self._may(head):
            status, body = "401 Unauthorized", "show the token of the node\n"
        data = body.encode()
        lines = (
            f"HTTP/1.1 {status}",
            f"Content-Type: {TYPE}",
            f"Content-Length: {len(data)}",
            "Connection: close",
        )
        writer.write("\r\n".join((*lines, "", "")).encode("latin-1"))
        if method != "HEAD":
            writer.write(data)
        await writer.drain()


def _unknown() -> None:
    """Know nothing of who asks: on loopback everybody may."""
