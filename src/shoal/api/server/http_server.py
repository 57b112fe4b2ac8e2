"""The HTTP server of a node, for web page and metrics: Starlette on uvicorn.

Theory of operation. `open` binds a socket and watches it for a first connection. That
is all an unvisited server costs: importing uvicorn and starlette takes a tenth of a
second and ten megabytes, and most nodes are never visited. The first connection waits
in the kernel's queue while a thread imports them; from then on uvicorn accepts.

On loopback the server speaks plain HTTP. Off loopback anybody on the way could read the
token, so a `TlsDoor` ends TLS there, as for the API, with its limits for strangers, and
passes the bytes on to a private socket that uvicorn listens on. The certificate has a
key of its own, so it stays the same when the node's grant is renewed.

Bounds: `HttpLimits` for a connection, `http_visits` for how they are enforced. `close`
aborts all connections; no task of the server is left when it returns.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import socket
import ssl
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

from shoal.api.client.credentials import EVERYWHERE, bytes_of
from shoal.api.node_file import socket_path
from shoal.api.server.tls_door import TlsDoor
from shoal.api.sockets import private
from shoal.errors import ProtocolError
from shoal.interfaces import is_loopback
from shoal.net.direct.binding import bound, port_of
from shoal.net.identity import vouched_certificates
from shoal.runtime.membership.shoal_membership import write_private

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from starlette.types import ASGIApp

    from shoal.api.server.http_visits import Visits
    from shoal.net.identity.certificates import Shown
    from shoal.net.identity.identity import Identity
    from shoal.runtime.home import Home

BACKLOG: Final = 128


class HttpLimits(NamedTuple):
    """Limits on visitors and their connections."""

    strangers_max: int  # on loopback, without the token; oldest go
    idle_s: float = 30.0  # before and between requests
    request_s: float = 10.0  # from the first byte of a request to its last
    send_s: float = 20.0  # longest time a visitor may not read


class PageKey(NamedTuple):
    """TLS context of a page, and its certificate's fingerprint for users to compare."""

    tls: ssl.SSLContext
    print: str


@final
class HttpServer:
    """Serves one application at one address."""

    def __init__(
        self,
        make_app: Callable[[], ASGIApp],
        limits: HttpLimits,
        home: Home,
        identity: Identity,
        *,
        suffix: str,
    ) -> None:
        """Serve the application that `make_app` returns, called once in a thread.

        `suffix` distinguishes the private sockets of several servers of a node.
        """
        self.print = ""  # certificate fingerprint, with TLS
        self._make_app = make_app
        self._limits = limits
        self._home = home
        self._identity = identity
        self._inner = socket_path(home).with_suffix(suffix)
        self._door: TlsDoor | None = None
        self._sockets: list[socket.socket] = []
        self._waking: asyncio.Task[None] | None = None
        self._visits: Visits | None = None  # set by the first visitor

    async def open(self, host: str, port: int) -> int:
        """Listen; return the port. Raises `OSError`."""
        if is_loopback(host):
            self._sockets = await bound(host, port)
            for each in self._sockets:
                each.listen(BACKLOG)
            port = port_of(self._sockets[0])
        else:
            key = page_key(self._home, self._identity, host)
            self.print = key.print
            self._door = TlsDoor(key.tls, _nobody, takes_plain=False)
            port = await self._door.open(host, port)
            self._sockets = [_private_socket(self._inner)]
            await self._door.serve(self._inner)
        loop = asyncio.get_running_loop()
        for each in self._sockets:
            loop.add_reader(each.fileno(), self._wake)
        return port

    def cut(self) -> None:
        """Drop all visitors; new ones may come."""
        if self._visits is not None:
            self._visits.cut()

    async def close(self) -> None:
        """Stop listening and drop all visitors."""
        if self._door is not None:
            self._door.close()
            self._inner.unlink(missing_ok=True)
        if self._waking is not None:
            await self._waking
        if self._visits is not None:
            await self._visits.close()
        else:
            self._sleep()
            for each in self._sockets:
                each.close()

    def _wake(self) -> None:
        """Start uvicorn on the first connection."""
        self._sleep()
        self._waking = asyncio.ensure_future(self._serve())

    def _sleep(self) -> None:
        loop = asyncio.get_running_loop()
        for each in self._sockets:
            loop.remove_reader(each.fileno())

    async def _serve(self) -> None:
        visits, app = await asyncio.to_thread(self._load)
        guests = None if self._door is None else self._door.guests
        self._visits = serving = visits.Visits(app, self._limits, guests)
        await serving.start(self._sockets)

    def _load(self) -> tuple[Any, ASGIApp]:
        """Import uvicorn and make the application; slow."""
        name = "shoal.api.server.http_visits"
        return importlib.import_module(name), self._make_app()


def page_key(home: Home, identity: Identity, host: str) -> PageKey:
    """Return the TLS key of pages on a host; write `web.key` and `web.crt` if needed.

    They contain no grant, so they stay the same when it is renewed.
    """
    key_file, file = home.path / "web.key", home.path / "web.crt"
    key, known = bytes_of(key_file), bytes_of(file)
    if not key:
        key, known = vouched_certificates.new_key(), b""
        write_private(key_file, key)
    wanted = {vouched_certificates.NAME, socket.gethostname().lower()}
    if host not in EVERYWHERE:
        wanted.add(host)
    if not _is_for(known, identity, wanted):
        known = vouched_certificates.vouched(identity, None, key, wanted)
        write_private(file, known)
    der = ssl.PEM_cert_to_DER_cert(known.decode("ascii"))
    found = hashlib.sha256(der).digest().hex(":").upper()
    return PageKey(vouched_certificates.showing(key, known), found)


def _is_for(pem: bytes, identity: Identity, hosts: set[str]) -> bool:
    try:
        shown = vouched_certificates.read(ssl.PEM_cert_to_DER_cert(pem.decode("ascii")))
        return shown.node == identity.node and hosts <= set(
            vouched_certificates.hosts_of(pem)
        )
    except (ProtocolError, ValueError):
        return False


def _private_socket(path: Path) -> socket.socket:
    """Return a listening socket at `path` that only this user can open."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.setblocking(False)
    with private(path):
        made.bind(str(path))
    made.listen(BACKLOG)
    return made


def _nobody(shown: Shown) -> str:
    """Refuse all certificates."""
    del shown
    return "pages ask for the token"
