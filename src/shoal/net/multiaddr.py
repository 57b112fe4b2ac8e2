"""Addresses of nodes as text, in the format of libp2p.

`/ip4/192.0.2.7/tcp/4002/p2p/12D3KooW...` says where to dial and whom to expect
there; the last part may be left out. Hosts are `ip4`, `ip6`, or names that are looked
up as `dns` (either family), `dns4` or `dns6`. Direct links dial TCP and nothing else.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from shoal.errors import UsageError
from shoal.interfaces import ANYWHERE, ANYWHERE_6, address_towards
from shoal.model.ids import NodeId
from shoal.net.identity.identity import public_key
from shoal.protocol.limits import ADDRESS_LENGTH_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable

HostKind = Literal["ip4", "ip6", "dns", "dns4", "dns6"]
PORT_MAX: Final = 65_535

_NAME: Final = re.compile(
    r"(?=.{1,253}$)([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9])?\.)*"
    r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.?",
    re.IGNORECASE,
)
_FAMILIES: Final[dict[HostKind, socket.AddressFamily]] = {
    "ip4": socket.AF_INET,
    "ip6": socket.AF_INET6,
    "dns": socket.AF_UNSPEC,
    "dns4": socket.AF_INET,
    "dns6": socket.AF_INET6,
}


class Multiaddr(NamedTuple):
    """Where a node listens for direct links, and perhaps who it is."""

    kind: HostKind
    host: str
    port: int
    node: NodeId | None = None

    @property
    def family(self) -> socket.AddressFamily:
        """The address family to look the host up in."""
        return _FAMILIES[self.kind]

    def __str__(self) -> str:
        whom = f"/p2p/{self.node}" if self.node else ""
        return f"/{self.kind}/{self.host}/tcp/{self.port}{whom}"


def parse(text: str) -> Multiaddr:
    """Parse an address; raise `UsageError` that says what is wrong."""
    if len(text) > ADDRESS_LENGTH_MAX:
        raise _bad(text, f"{len(text)} letters > {ADDRESS_LENGTH_MAX}")
    empty, *parts = text.split("/")
    if empty:
        raise _bad(text, "it does not begin with '/'")
    if len(parts) not in (4, 6):
        raise _bad(text, f"{len(parts)} parts instead of 4 or 6")
    kind, host, transport, port, *whom = parts
    if transport != "tcp":
        raise _bad(text, f"'{transport}' cannot be dialled directly, only 'tcp'")
    if whom and whom[0] != "p2p":
        raise _bad(text, f"'{whom[0]}' where 'p2p' belongs")
    node = NodeId(whom[1]) if whom else None
    if node is not None:
        public_key(node)
    return Multiaddr(
        _kind(text, kind), _host(text, kind, host), _port(text, port), node
    )


def of_socket(address: tuple[str, int], node: NodeId | None = None) -> Multiaddr:
    """Return the address of a socket."""
    host, port = address
    host = host.partition("%")[0]  # The zone of a link-local address is ours alone.
    version = ipaddress.ip_address(host).version
    return Multiaddr("ip4" if version == 4 else "ip6", host, port, node)


def reachable(sockets: Iterable[socket.socket], node: NodeId) -> list[str]:
    """Return the addresses of open sockets that others may dial, as far as we know."""
    found: list[str] = []
    for sock in sockets:
        host, port = sock.getsockname()[:2]
        if ipaddress.ip_address(host).is_unspecified:
            is_ip4 = sock.family == socket.AF_INET
            host = address_towards(ANYWHERE if is_ip4 else ANYWHERE_6)
        found.append(str(of_socket((host, port), node)))
    return found


def _kind(text: str, kind: str) -> HostKind:
    for known in _FAMILIES:
        if kind == known:
            return known
    listed = ", ".join(_FAMILIES)
    raise _bad(text, f"'{kind}' is not a kind of host; these are: {listed}")


def _host(text: str, kind: str, host: str) -> str:
    if kind.startswith("dns"):
        if not _NAME.fullmatch(host):
            raise _bad(text, f"'{host}' is not a host name")
        return host.lower()
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        raise _bad(text, f"'{host}' is not an IP address") from None
    if kind != f"ip{address.version}" or "%" in host:
        raise _bad(text, f"'{host}' is not of kind {kind}")
    return str(address)


def _port(text: str, port: str) -> int:
    if not port.isascii() or not port.isdigit() or len(port) > 5:
        raise _bad(text, f"'{port}' is not a port")
    if not 1 <= int(port) <= PORT_MAX:
        raise _bad(text, f"port {int(port)} is not within 1 to {PORT_MAX}")
    return int(port)


def _bad(text: str, because: str) -> UsageError:
    shown = "".join(c if c.isprintable() else "?" for c in text[:100])
    return UsageError(
        f"'{shown}' is not an address of a node",
        because=because,
        hint="an address looks like /ip4/192.0.2.7/tcp/4002 or /dns4/host/tcp/4002",
    )
