"""Waits for visitors. Until the first one comes, the page costs a socket and no more.

That is also why this imports nothing of the rest of the page by itself.
"""

from __future__ import annotations

import asyncio
import importlib
from typing import TYPE_CHECKING, Any, Final, final

from shoal.api.door import Guest
from shoal.api.far_pages import FarPage, is_loopback, page_key
from shoal.api.whereabouts import socket_path
from shoal.errors import ShoalError
from shoal.runtime.listening import listen_address

if TYPE_CHECKING:
    from shoal.api.far_pages import Find
    from shoal.api.service import Service
    from shoal.runtime.node import Node

OFF: Final = "off"
USUAL: Final = "127.0.0.1:7420"
NEXT_PORTS: Final = 20
"""So many ports after the usual one are tried; then any will do."""

CONNECTIONS_MAX: Final = 64
"""Visitors of this machine that have not shown the token; the oldest makes room."""

SUFFIX: Final = ".page"
READER_BYTES_MAX: Final = 65_536


@final
class WebPage:
    """The page of a node, or none at all if it is off."""

    def __init__(self, node: Node, service: Service, token: str, where: str) -> None:
        """Serve at `where`: host and port, nothing for the usual place, or "off"."""
        self.address = ""
        self.print = ""  # Of its certificate, if it is served by TLS.
        self.port_was_taken = False
        self._node = node
        self._service = service
        self._token = token
        self._where = where
        self._server: asyncio.Server | None = None
        self._far: FarPage | None = None
        self._visits: dict[asyncio.Task[None], None] = {}  # In the order of arrival.
        self._proved: set[asyncio.Task[None]] = set()  # Those who showed the token.
        self._site: Any = None  # Made for the first visitor.

    async def start(self) -> None:
        """Listen; the usual place may be taken, one that was asked for may not."""
        if self._where == OFF:
            return
        host, port = listen_address(self._where or USUAL)
        ports = [port]
        if not self._where:
            ports += [*range(port + 1, port + 1 + NEXT_PORTS), 0]
        bound = 0
        for each in ports:
            try:
                bound = await self._listen(host, each)
                break
            except OSError as error:
                if each == ports[-1]:
                    raise _cannot_listen(f"{host}:{port}", error) from error
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
        if self._far is not None:
            self._far.close()
        if self._server is not None:
            self._server.close()
        for visit in self._visits:
            visit.cancel()
        await asyncio.gather(*self._visits, return_exceptions=True)

    async def _listen(self, host: str, port: int) -> int:
        """Listen in plain HTTP for this machine, and by TLS for others."""
        if is_loopback(host):
            self._server = await asyncio.start_server(
                self._visited, host, port, limit=READER_BYTES_MAX
            )
            return int(self._server.sockets[0].getsockname()[1])
        home = self._node.home
        key = page_key(home, self._node.identity, host)
        self.print = key.print
        inner = socket_path(home).with_suffix(SUFFIX)
        self._far = FarPage(key.tls, inner, self._come)
        return await self._far.open(host, port)

    def _visited(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Let a visitor of this machine in; of strangers the oldest makes room."""
        guest = Guest(None, is_far=False, on_proof=lambda _: proved())
        visit = self._come(reader, writer, lambda: guest)

        def proved() -> None:
            self._proved.add(visit)

        strangers = [each for each in self._visits if each not in self._proved]
        for oldest in strangers[: max(0, len(strangers) - CONNECTIONS_MAX)]:
            oldest.cancel()

    def _come(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, find: Find
    ) -> asyncio.Task[None]:
        visit = asyncio.ensure_future(self._serve(reader, writer, find))
        self._visits[visit] = None
        visit.add_done_callback(self._left)
        return visit

    def _left(self, visit: asyncio.Task[None]) -> None:
        del self._visits[visit]
        self._proved.discard(visit)
        if not visit.cancelled() and (error := visit.exception()) is not None:
            raise error  # A bug, which the loop tells in the node's log.

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, find: Find
    ) -> None:
        try:
            site = self._site or await self._make_site()
            await site.serve(reader, writer, find)
        finally:
            writer.close()

    async def _make_site(self) -> Any:  # noqa: ANN401 - Its room is not loaded yet.
        module = await asyncio.to_thread(importlib.import_module, "shoal.web.site")
        host = listen_address(self.address)[0]
        if self._site is None:  # Two may come at once.
            self._site = module.Site(self._node, self._service, self._token, host)
        return self._site


def _cannot_listen(where: str, error: OSError) -> ShoalError:
    return ShoalError(
        f"cannot listen on {where} for the page",
        because=error.strerror or str(error),
        hint="name another address with --web HOST:PORT, or none with --no-web",
    )
