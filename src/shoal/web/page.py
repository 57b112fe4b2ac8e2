"""The listening end of a node's web page.

It imports nothing else of the page before the first visitor comes; until then the page
costs one listening socket. Without a given address, it tries the usual port, the next
`NEXT_PORTS` ports, and then any free port.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from shoal.api.server.http_server import HttpLimits, HttpServer
from shoal.errors import ShoalError
from shoal.runtime.discovery.listen_addresses import listen_address

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from shoal.api.service.service import Service
    from shoal.runtime.node import Node

OFF: Final = "off"
USUAL: Final = "127.0.0.1:7420"
NEXT_PORTS: Final = 20
"""Ports to try after the usual one, before taking any free port."""

LIMITS: Final = HttpLimits(strangers_max=64)
SUFFIX: Final = ".page"


@final
class WebPage:
    """The web page of a node; does nothing if it is off."""

    def __init__(
        self,
        node: Node,
        service: Service,
        token: str,
        where: str,
        limits: HttpLimits = LIMITS,
    ) -> None:
        """Serve at `where`: host and port, empty for the default, or "off"."""
        self.address = ""
        self.print = ""  # fingerprint of the certificate, with TLS
        self.port_was_taken = False
        self._node = node
        self._service = service
        self._token = token
        self._where = where
        self._server = HttpServer(
            self._make_app, limits, node.home, node.identity, suffix=SUFFIX
        )

    async def start(self) -> None:
        """Listen; fall back to another port only if none was asked for."""
        if self._where == OFF:
            return
        host, port = listen_address(self._where or USUAL)
        ports = [port]
        if not self._where:
            ports += [*range(port + 1, port + 1 + NEXT_PORTS), 0]
        bound = 0
        for each in ports:
            try:
                bound = await self._server.open(host, each)
                break
            except OSError as error:
                if each == ports[-1]:
                    raise _cannot_listen(f"{host}:{port}", error) from error
        self.print = self._server.print
        self.port_was_taken = not self._where and bound != port
        self.address = f"[{host}]:{bound}" if ":" in host else f"{host}:{bound}"

    def renew(self, token: str) -> None:
        """Require a new token and drop all visitors."""
        self._token = token
        self._server.cut()

    async def stop(self) -> None:
        """Stop listening and drop all visitors."""
        await self._server.close()

    def _make_app(self) -> ASGIApp:
        from shoal.web.site import Site  # noqa: PLC0415 - Slow, and rarely needed.

        host = listen_address(self.address)[0]
        return Site(self._node, self._service, lambda: self._token, host).app()


def _cannot_listen(where: str, error: OSError) -> ShoalError:
    return ShoalError(
        f"cannot listen on {where} for the page",
        because=error.strerror or str(error),
        hint="name another address with --web HOST:PORT, or none with --no-web",
    )
