"""Choose where a node listens for direct links and for libp2p streams.

Ports of the previous run are reused if they are free, because peers remember them.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec

from shoal.errors import ShoalError, UsageError
from shoal.interfaces import is_loopback
from shoal.model.addresses import direct_ones, stream_ones
from shoal.model.kinds import Overlay
from shoal.net import multiaddr
from shoal.net.direct.binding import bound, port_of
from shoal.runtime.membership.shoal_membership import write_private

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from shoal.model.ids import NodeId
    from shoal.runtime.home import Home

LISTEN: Final = "127.0.0.1:0"


class NetworkOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Network options of the user; an empty string means unset."""

    listen: str = ""  # host:port
    announce: tuple[str, ...] = ()  # host:port as seen by others
    gate: bool | None = None  # whether to relay; None: decide automatically
    without: tuple[str, ...] = ()  # disabled means of finding members
    overlay: Overlay = "random"  # which neighbours hear load gossip
    # Whether a lone node looks for a shoal on the local network, and then asks its
    # user or joins without asking.
    lan: Literal["off", "ask", "join"] = "off"
    relay: str = ""  # relay limits of a gate: members=256,circuits=32,bytes=4GB
    open_lan: bool = False  # whether any machine on the LAN may join as worker


class ListenAddress(NamedTuple):
    """Where a node listens for direct links; port 0 and no sockets: nowhere."""

    host: str
    port: int
    sockets: list[socket.socket]
    announced: list[str]  # what others are told, as multiaddrs


async def bind(
    node: NodeId, home: Home, options: NetworkOptions, *, is_on: bool
) -> ListenAddress:
    """Bind the user's address, else that of the last run, else one on loopback."""
    record = home.path / "listen"
    text = options.listen or _read(record) or LISTEN
    host, port = listen_address(text)
    if not is_on:
        return ListenAddress(host, 0, [], [])
    announce = [_direct_address(each, node) for each in options.announce]
    try:
        try:
            sockets = await bound(host, port)
        except OSError:
            if options.listen:
                raise
            sockets = await bound(host)
    except OSError as error:
        raise ShoalError(
            f"cannot listen on {text}",
            because=error.strerror or str(error),
            hint="name another address with --listen HOST:PORT",
        ) from error
    port = port_of(sockets[0])
    write_private(record, f"{_bracketed(host)}:{port}\n".encode())
    announced = announce or multiaddr.reachable(sockets, node)
    return ListenAddress(host, port, sockets, announced)


def listen_address(text: str) -> tuple[str, int]:
    """Parse host and port from text like `0.0.0.0:4001` or `[::]:4001`."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > multiaddr.PORT_MAX:
        raise UsageError(
            f"'{text}' is not a host and a port",
            because="a port is a number up to 65535, after a colon",
            hint="write it like 0.0.0.0:4001",
        )
    return host.strip("[]"), int(port)


def _direct_address(text: str, node: NodeId) -> str:
    return f"{_multiaddr(*listen_address(text))}/p2p/{node}"


def _multiaddr(host: str, port: int) -> str:
    try:
        version = ipaddress.ip_address(host).version
    except ValueError:
        return str(multiaddr.parse(f"/dns/{host}/tcp/{port}"))
    return str(multiaddr.parse(f"/ip{version}/{host}/tcp/{port}"))


def libp2p_listen(home: Home, place: ListenAddress, options: NetworkOptions) -> str:
    """Return the address where libp2p listens.

    If the user names a port for direct links, it is the next one, so that firewall
    rules are predictable; otherwise it is the last run's. If that port is taken, any
    free one is used, because libp2p would share it with another process.
    """
    wanted = int(_read(home.path / "listen-p2p") or 0)
    if options.listen and place.port:
        wanted = place.port + 1
    host = address_of(place.host)
    version = ipaddress.ip_address(host).version
    return f"/ip{version}/{host}/tcp/{_free(host, wanted)}"


def libp2p_announce(options: NetworkOptions) -> tuple[str, ...]:
    """Return announced libp2p addresses: the ports of direct links plus one."""
    places = [listen_address(text) for text in options.announce]
    return tuple(_multiaddr(host, port + 1) for host, port in places)


def _free(host: str, port: int) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except (OSError, OverflowError):
            return 0
    return port


def write_port(home: Home, addresses: tuple[str, ...]) -> None:
    """Save libp2p's port for the next run."""
    for address in stream_ones(addresses):
        parts = address.split("/")
        if "p2p-circuit" not in parts and "tcp" in parts:
            port = parts[parts.index("tcp") + 1]
            write_private(home.path / "listen-p2p", f"{port}\n".encode())
            return


def address_of(host: str) -> str:
    """Resolve a host name or address to an address."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return socket.gethostbyname(host)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return ""


def only_here(addresses: Iterable[str]) -> bool:
    """Whether all direct addresses are loopback addresses."""
    hosts = [multiaddr.parse(address).host for address in direct_ones(addresses)]
    return all(is_loopback(host) for host in hosts)
