"""Waits for visitors. Until the first one comes, the page costs a socket and no more.

That is also why this imports nothing of the rest of the page by itself.
"""

from __future__ import annotations

import asyncio
import importlib
from typing import TYPE_CHECKING, Any, Final, final

from shoal.errors import ShoalError
from shoal.runtime.listening import listen_address

if TYPE_CHECKING:
    from shoal.api.service import Service
    from shoal.runtime.node import Node

OFF: Final = "off"
USUAL: Final = "127.0.0.1:7420"
NEXT_PORTS: Final = 20
"""So many ports after the usual one are tried; then any will do."""

CONNECTIONS_MAX: Final = 64
READER_BYTES_MAX: Final = 65_536


@final
class WebPage:
    """The page of a node, or none at all if it is off."""

    def __init__(self, node: Node, service: Service, token: str, where: str) -> None:
        """Serve at `where`: host and port, nothing for the usual place, or "off"."""
        self.address = ""
        self.port_was_taken = False
        self._node = node
        self._service = service
        self._token = token
        self._where = where
        self._server: asyncio.Server | None = None
        self._visits: dict[asyncio.Task[None], None] = {}
        self._site: Any = None  # Made for the first visitor.

    async def start(self) -> None:
        """Listen; the usual place may be taken, one that was asked for may not."""
        if self._where == OFF:
            return
        host, port = listen_address(self._where or USUAL)
        ports = [port]
        if not self._where:
            ports += [*range(port + 1, port + 1 + NEXT_PORTS), 0]
        for each in ports:
            try:
                self._server = await asyncio.start_server(
                    self._visited, host, each, limit=READER_BYTES_MAX
                )
                break
            except OSError as error:
                if each == ports[-1]:
                    raise _cannot_listen(f"{host}:{port}", error) from error
        assert self._server is not None
        bound: int = self._server.sockets[0].getsockname()[1]
        self.port_was_taken = not self._where and bound != port
        self.address = f"[{host}]:{bound}" if ":" in host else f"{host}:{bound}"

    def renew(self, token: str) -> None:
        """Ask for this token from now on, and send all visitors away."""
        self._token = token
        self._site = None
        for visit in self._visits:
            visit.cancel()

    async def stop(self) -> None:
        """Listen no more, and send all visitors away."""
        if self._server is not None:
            self._server.close()
        for visit in self._visits:
            visit.cancel()
        await asyncio.gather(*self._visits, return_exceptions=True)

    def _visited(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if len(self._visits) >= CONNECTIONS_MAX:
            writer.transport.abort()
            return
        visit = asyncio.ensure_future(self._serve(reader, writer))
        self._visits[visit] = None
        visit.add_done_callback(self._left)

    def _left(self, visit: asyncio.Task[None]) -> None:
        del self._visits[visit]
        if not visit.cancelled() and (error := visit.exception()) is not None:
            raise error  # A bug, which the loop tells in the node's log.

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if self._site is None:
            module = await asyncio.to_thread(importlib.import_module, "shoal.web.site")
            host = listen_address(self.address)[0]
            if self._site is None:  # Two may come at once.
                self._site = module.Site(self._node, self._service, self._token, host)
        await self._site.serve(reader, writer)


def _cannot_listen(where: str, error: OSError) -> ShoalError:
    return ShoalError(
        f"cannot listen on {where} for the page",
        because=error.strerror or str(error),
        hint="name another address with --web HOST:PORT, or none with --no-web",
    )
