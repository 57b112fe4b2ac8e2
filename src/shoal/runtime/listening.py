"""Where a node listens for others: for direct links, and for streams of libp2p.

Ports of an earlier life are taken again if they are free, because others know them.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec

from shoal.errors import ShoalError, UsageError
from shoal.model.addresses import direct_ones, stream_ones
from shoal.net import multiaddr
from shoal.runtime.membership import write_private

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from shoal.model.ids import NodeId
    from shoal.net.direct import DirectLinks
    from shoal.runtime.home import Home

LISTEN: Final = "127.0.0.1:0"


class NetworkOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a user may say of the network. Empty texts are "not said"."""

    listen: str = ""  # host:port
    announce: tuple[str, ...] = ()  # host:port as others see it
    gate: bool | None = None  # whether to relay; None: if others join through it
    without: tuple[str, ...] = ()  # ways of finding others that are switched off
    # Whether a node that is alone looks for a shoal on the local network, and then
    # asks its user, or was told beforehand to join.
    lan: Literal["off", "ask", "join"] = "off"
    relay: str = ""  # what a gate relays at most: members=256,circuits=32,bytes=4GB
    open_lan: bool = False  # whether whoever is near may join as a worker


class Place(NamedTuple):
    """A host and a port on it; 0 if there is none."""

    host: str
    port: int


async def listen(
    links: DirectLinks, home: Home, options: NetworkOptions, *, is_on: bool
) -> Place:
    """Listen where the user says; else where the last life did, or on loopback.

    Returns where that is. If direct links are off, nobody listens there.
    """
    record = home.path / "listen"
    text = options.listen or _read(record) or LISTEN
    host, port = listen_address(text)
    if not is_on:
        return Place(host, 0)
    announce = [_direct_address(each, links.node) for each in options.announce]
    try:
        try:
            await links.listen(host, port, announce)
        except OSError:
            if options.listen:
                raise
            await links.listen(host, 0, announce)
    except OSError as error:
        await links.close()
        raise ShoalError(
            f"cannot listen on {text}",
            because=error.strerror or str(error),
            hint="name another address with --listen HOST:PORT",
        ) from error
    bound = links.ports[0]
    write_private(record, f"{_bracketed(host)}:{bound}\n".encode())
    return Place(host, bound)


def listen_address(text: str) -> tuple[str, int]:
    """Return host and port of `0.0.0.0:4001` or `[::]:4001`."""
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


def libp2p_listen(home: Home, place: Place, options: NetworkOptions) -> str:
    """Return where libp2p listens: one port further than direct links, or any.

    The next port is for those who open ports in a firewall; who names none gets that
    of the last life. A port that is taken is not: libp2p would share it with others.
    """
    wanted = int(_read(home.path / "listen-p2p") or 0)
    if options.listen and place.port:
        wanted = place.port + 1
    host = _address_of(place.host)
    version = ipaddress.ip_address(host).version
    return f"/ip{version}/{host}/tcp/{_free(host, wanted)}"


def libp2p_announce(options: NetworkOptions) -> tuple[str, ...]:
    """Return where others reach libp2p: one port further than direct links, again."""
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
    """Keep the port of libp2p for the next life."""
    for address in stream_ones(addresses):
        parts = address.split("/")
        if "p2p-circuit" not in parts and "tcp" in parts:
            port = parts[parts.index("tcp") + 1]
            write_private(home.path / "listen-p2p", f"{port}\n".encode())
            return


def _address_of(host: str) -> str:
    """Return the address of a host that may be a name."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return socket.gethostbyname(host)


def is_loopback(host: str) -> bool:
    """Whether what listens there is reached from this machine only."""
    return ipaddress.ip_address(_address_of(host)).is_loopback


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return ""


def only_here(addresses: Iterable[str]) -> bool:
    """Whether all these addresses are of this machine alone."""
    hosts = [multiaddr.parse(address).host for address in direct_ones(addresses)]
    return all(host in ("127.0.0.1", "::1") for host in hosts)
