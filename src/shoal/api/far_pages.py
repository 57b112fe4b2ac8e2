"""HTTP for other machines: by TLS only, through a door, to a private socket.

The page and the figures of a node are in plain HTTP on loopback. Off loopback anybody
on the way could read the token, so there they are behind a door as the API is, with
its limits for strangers. The certificate has a key of its own, and stays the same.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import socket
import ssl
from typing import TYPE_CHECKING, Final, NamedTuple, final

from shoal.api.credentials import EVERYWHERE, bytes_of
from shoal.api.door import Door
from shoal.api.sockets import private
from shoal.errors import ProtocolError
from shoal.net import vouching
from shoal.runtime.membership import write_private

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from shoal.api.door import Guest
    from shoal.net.certificates import Shown
    from shoal.net.identity import Identity
    from shoal.runtime.home import Home

    Find = Callable[[], Guest | None]
    Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter, Find], object]
    """Begins to serve a visitor; `Find` says who it is, once it has said something."""

READER_BYTES_MAX: Final = 65_536


class PageKey(NamedTuple):
    """How pages prove themselves, and the print that a person compares."""

    tls: ssl.SSLContext
    print: str


def is_loopback(host: str) -> bool:
    """Whether only this machine can come to a host that is listened on."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def page_key(home: Home, identity: Identity, host: str) -> PageKey:
    """Return how to serve pages at this host; write `web.key` and `web.crt` if needed.

    They have no grant in them, so they stay when it is renewed.
    """
    key_file, file = home.path / "web.key", home.path / "web.crt"
    key, known = bytes_of(key_file), bytes_of(file)
    if not key:
        key, known = vouching.new_key(), b""
        write_private(key_file, key)
    wanted = {vouching.NAME, socket.gethostname().lower()}
    if host not in EVERYWHERE:
        wanted.add(host)
    if not _is_for(known, identity, wanted):
        known = vouching.vouched(identity, None, key, wanted)
        write_private(file, known)
    der = ssl.PEM_cert_to_DER_cert(known.decode("ascii"))
    found = hashlib.sha256(der).digest().hex(":").upper()
    return PageKey(vouching.showing(key, known), found)


def _is_for(pem: bytes, identity: Identity, hosts: set[str]) -> bool:
    try:
        shown = vouching.read(ssl.PEM_cert_to_DER_cert(pem.decode("ascii")))
        return shown.node == identity.node and hosts <= set(vouching.hosts_of(pem))
    except (ProtocolError, ValueError):
        return False


@final
class FarPage:
    """Listens for other machines, and has each visitor served."""

    def __init__(self, tls: ssl.SSLContext, inner: Path, serve: Serve) -> None:
        self._door = Door(tls, _nobody, takes_plain=False)
        self._inner = inner
        self._serve = serve
        self._server: asyncio.Server | None = None

    async def open(self, host: str, port: int) -> int:
        """Listen; return the port. Raises `OSError`."""
        bound = await self._door.open(host, port)
        with private(self._inner):
            self._server = await asyncio.start_unix_server(
                self._visited, str(self._inner), limit=READER_BYTES_MAX
            )
        await self._door.serve(self._inner)
        return bound

    def cut(self) -> None:
        """Send away who came in by the token."""
        self._door.cut("token")

    def close(self) -> None:
        """Listen no more, and send all visitors away."""
        self._door.close()
        if self._server is not None:
            self._server.close()
            self._inner.unlink(missing_ok=True)

    def _visited(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        name = writer.get_extra_info("peername") or b""
        text = name.decode() if isinstance(name, bytes) else str(name)
        called = f"unix-abstract:{text.lstrip(chr(0))}"
        self._serve(reader, writer, lambda: self._door.guests.get(called))


def _nobody(shown: Shown) -> str:
    """Say that certificates open no pages."""
    del shown
    return "pages ask for the token"
