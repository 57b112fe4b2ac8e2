"""The network of a live node: both ways to peers, and every way to find them.

Direct links are there at once. libp2p takes a second and 80 MB to load, so it is
started after the node is ready, and not at all while there is nobody to find: a lone
node that listens on loopback, and has invited nobody, stays as small as it is.
"""

from __future__ import annotations

import ipaddress
import socket
from random import Random
from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.core.events import AddressesChanged
from shoal.errors import ShoalError, UsageError
from shoal.model.addresses import direct_ones, stream_ones
from shoal.net import multiaddr
from shoal.net.direct import DirectLinks
from shoal.net.libp2p.port import Libp2p
from shoal.net.libp2p.settings import Greeting, Settings
from shoal.net.petname import petname
from shoal.net.ways import Ways
from shoal.protocol.messages import Hello
from shoal.runtime.acquaintances import Acquaintances
from shoal.runtime.finding import WAYS, Finders, Finding, Hearing, Libp2pEars
from shoal.runtime.membership import next_epoch, write_private
from shoal.runtime.neighbours import Neighbours

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from shoal.model.ids import NodeId
    from shoal.runtime.home import Home
    from shoal.runtime.node import Node
    from shoal.runtime.reception import Reception

LISTEN: Final = "127.0.0.1:0"


class NetworkOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a user may say of the network. Empty texts are "not said"."""

    listen: str = ""  # host:port
    announce: tuple[str, ...] = ()  # host:port as others see it
    gate: bool | None = None  # whether to relay; None: if others join through it
    without: tuple[str, ...] = ()  # ways of finding others that are switched off


def finding_of(without: Iterable[str]) -> Finding:
    """Return by which ways to find others; raise `UsageError` if one is unknown."""
    for way in without:
        if way not in WAYS:
            raise UsageError(
                f"there is no way '{way}' to do without",
                because=f"the ways are {', '.join(WAYS)}",
                hint="write it like --without mdns",
            )
    return Finding(**dict.fromkeys(without, False))


@final
class Network:
    """All of a node's network; `links` and `finder` are what the machine uses."""

    def __init__(
        self,
        links: Ways,
        finder: Finders,
        libp2p: Libp2p | None,
        known: Acquaintances,
        *,
        is_lonely: bool,
        is_gate: bool,
    ) -> None:
        self.links: Final = links
        self.finder: Final = finder
        self.libp2p: Final = libp2p
        self.is_gate: Final = is_gate
        self._known = known
        self._is_lonely = is_lonely
        self._is_ready = False

    @property
    def acquaintances(self) -> list[tuple[NodeId, tuple[str, ...]]]:
        """Members that this node was linked to of late, and its gates, and where."""
        return list(self._known)

    @property
    def p2p_state(self) -> str:
        """Say how libp2p is, in a few words."""
        if self.libp2p is None:
            return "off"
        if not self.libp2p.is_started:
            return "not needed yet"
        if self.libp2p.is_up:
            return "up"
        why = self.libp2p.stopped_because
        return f"starting again: {why}" if why else "starting"

    @property
    def gates(self) -> tuple[NodeId, ...]:
        """The gates that this node was told of when it joined."""
        return self._known.gates

    def begin(self) -> None:
        """Start what is slow: the node is ready."""
        self._is_ready = True
        if not self._is_lonely:
            self._start()

    def expect_company(self) -> None:
        """Start libp2p even on a lone node: somebody was invited, or has come."""
        self._is_lonely = False
        if self._is_ready:
            self._start()

    def _start(self) -> None:
        if self.libp2p is not None and not self.libp2p.is_started:
            self.libp2p.start()


async def make_network(node: Node, options: NetworkOptions, desk: Reception) -> Network:
    """Return the ways of this node to others, listening already.

    The ports of its last life are taken again, if they are free: others know them.
    """
    finding = finding_of(options.without)
    hello = Hello(
        generation=next_epoch(node.home),
        name=petname(node.id),
        grant=node.membership.grant,
    )
    hearing = Hearing(node.listener)
    ways = Ways(node.id, hearing)
    direct = DirectLinks(
        node.identity,
        node.membership.grant,
        admit=node.admit,
        listener=ways.direct_ears,
        hello=msgspec.structs.replace(hello, grant=None),  # It is in the certificate.
        desk=desk,
        holds=finding.p2p,
    )
    host, port = await _listen(direct, node.home, options, is_on=finding.direct)
    gates = node.membership.gates if finding.gates else ()
    file = node.home.path / "peers.json" if finding.gates else None
    known = Acquaintances(file, gates)
    neighbours = Neighbours(ways, known, Random(node.id), asks=finding.peers)
    is_public = not _is_loopback(host)
    # Who knows no gate is the one that others join through.
    is_gate = is_public and not gates if options.gate is None else options.gate
    if "gate" not in node.membership.grant.roles:
        is_gate = False

    def moved_house() -> None:
        if libp2p is not None:
            _write_port(node.home, libp2p.addresses)
        node.feed(AddressesChanged(ways.addresses))
        neighbours.tell_addresses()

    libp2p: Libp2p | None = None
    if finding.p2p:
        libp2p = Libp2p(
            node.identity,
            Settings(
                shoal=str(node.membership.root),
                listen=(_libp2p_listen(node.home, host, port, options),),
                announce=_libp2p_announce(options),
                direct=direct.addresses,
                gates=_stream_gates(known),
                is_gate=is_gate,
                is_relayed=not is_gate,
                mdns=finding.mdns,
            ),
            Greeting(hello=lambda: hello, admit=node.admit),
            Libp2pEars(ways, hearing, finding, neighbours, moved_house),
        )
    ways.attach(direct, libp2p, dials=finding.direct)
    finder = Finders(neighbours, libp2p, hearing, finding)
    is_lonely = not len(known) and not is_public and not options.gate
    network = Network(ways, finder, libp2p, known, is_lonely=is_lonely, is_gate=is_gate)
    hearing.attach(neighbours, network.expect_company)
    neighbours.start()
    return network


def _stream_gates(known: Acquaintances) -> tuple[str, ...]:
    return tuple(a for _, addresses in known for a in stream_ones(addresses))


# Where to listen.


async def _listen(
    links: DirectLinks, home: Home, options: NetworkOptions, *, is_on: bool
) -> tuple[str, int]:
    """Listen where the user says; else where the last life did, or on loopback.

    Returns the host and the port. If direct links are off, nobody listens there.
    """
    record = home.path / "listen"
    text = options.listen or _read(record) or LISTEN
    host, port = listen_address(text)
    if not is_on:
        return host, 0
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
    return host, bound


def listen_address(text: str) -> tuple[str, int]:
    """Return host and port of `0.0.0.0:4001` or `[::]:4001`."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > multiaddr.PORT_MAX:
        raise UsageError(
            f"'{text}' is not a host and a port",
            because="a port is a number up to 65535, after a colon",
            hint="write it like --listen 0.0.0.0:4001",
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


def _libp2p_listen(home: Home, host: str, port: int, options: NetworkOptions) -> str:
    """Return where libp2p listens: one port further than direct links, or any.

    The next port is for those who open ports in a firewall; who names none gets that
    of the last life. A port that is taken is not: libp2p would share it with others.
    """
    wanted = int(_read(home.path / "listen-p2p") or 0)
    if options.listen and port:
        wanted = port + 1
    version = ipaddress.ip_address(_address_of(host)).version
    return f"/ip{version}/{_address_of(host)}/tcp/{_free(host, wanted)}"


def _libp2p_announce(options: NetworkOptions) -> tuple[str, ...]:
    """Return where others reach libp2p: one port further than direct links, again."""
    places = [listen_address(text) for text in options.announce]
    return tuple(_multiaddr(host, port + 1) for host, port in places)


def _free(host: str, port: int) -> int:
    family = socket.AF_INET6 if ":" in _address_of(host) else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_address_of(host), port))
        except (OSError, OverflowError):
            return 0
    return port


def _write_port(home: Home, addresses: tuple[str, ...]) -> None:
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


def _is_loopback(host: str) -> bool:
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
