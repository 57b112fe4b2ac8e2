"""A page for Prometheus: `GET /metrics` over HTTP, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final, final

from shoal.errors import ShoalError

if TYPE_CHECKING:
    from collections.abc import Callable

REQUEST_BYTES_MAX: Final = 8_192
REQUEST_S: Final = 5.0
CONNECTIONS_MAX: Final = 16
TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


@final
class MetricsPage:
    """Answers whoever asks; it tells figures only, so it asks for no token."""

    def __init__(self, text: Callable[[], str]) -> None:
        self._text = text
        self._server: asyncio.Server | None = None
        self._open = 0

    async def start(self, host: str, port: int) -> int:
        """Listen; return the port."""
        try:
            self._server = await asyncio.start_server(
                self._serve, host, port, limit=REQUEST_BYTES_MAX
            )
        except OSError as error:
            raise ShoalError(
                f"cannot listen on {host}:{port} for metrics",
                because=error.strerror or str(error),
                hint="name another address with --metrics HOST:PORT",
            ) from error
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def stop(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.close()

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._open += 1
        try:
            if self._open <= CONNECTIONS_MAX:
                async with asyncio.timeout(REQUEST_S):
                    await self._answer(reader, writer)
        except (TimeoutError, ConnectionError, ValueError, EOFError):
            pass  # Whoever it was does not speak HTTP, or is gone.
        finally:
            self._open -= 1
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

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
