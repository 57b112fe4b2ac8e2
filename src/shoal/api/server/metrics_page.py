"""The listening end of the metrics page.

On loopback it answers everybody; off loopback it uses TLS and requires the token. The
application is imported when the first client connects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from shoal.api.server.http_server import HttpLimits, HttpServer
from shoal.errors import ShoalError
from shoal.interfaces import is_loopback

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp

    from shoal.runtime.node import Node

LIMITS: Final = HttpLimits(strangers_max=16, idle_s=5.0, request_s=5.0, send_s=5.0)
SUFFIX: Final = ".figures"


@final
class MetricsPage:
    """Serves the metrics of a node over HTTP."""

    def __init__(self, text: Callable[[], bytes], node: Node, token: str) -> None:
        self._text = text
        self._token = token
        self._is_open = False  # reachable from other machines
        self._server = HttpServer(
            self._make_app, LIMITS, node.home, node.identity, suffix=SUFFIX
        )

    async def start(self, host: str, port: int) -> int:
        """Start listening; return the port."""
        self._is_open = not is_loopback(host)
        try:
            return await self._server.open(host, port)
        except OSError as error:
            raise ShoalError(
                f"cannot listen on {host}:{port} for metrics",
                because=error.strerror or str(error),
                hint="name another address with --metrics HOST:PORT",
            ) from error

    def renew(self, token: str) -> None:
        """Require a new token of other machines, and drop all visitors."""
        self._token = token
        self._server.cut()

    async def stop(self) -> None:
        """Stop listening and drop all visitors."""
        await self._server.close()

    def _make_app(self) -> ASGIApp:
        from shoal.api.server import metrics_app  # noqa: PLC0415 - Slow, rarely needed.

        token = (lambda: self._token) if self._is_open else None
        return metrics_app.metrics_app(self._text, token)
