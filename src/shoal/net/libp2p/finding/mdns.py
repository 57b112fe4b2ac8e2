"""mDNS: announce this node on the local network, and hear other members.

It is the discovery that libp2p specifies: a service with a random name, and a text
record `dnsaddr=` for each address. Every shoal has a service type of its own.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from typing import TYPE_CHECKING, Final, Self, final

from zeroconf import Error as ZeroconfError
from zeroconf import (
    InterfaceChoice,
    NonUniqueNameException,
    ServiceInfo,
    ServiceListener,
    Zeroconf,
)

from shoal.net.libp2p.finding import address_book
from shoal.net.libp2p.thread.trio_calls import in_thread, shielded
from shoal.protocol.limits import ADDRESSES_MAX

if TYPE_CHECKING:
    from types import TracebackType

    from shoal.model.ids import NodeId
    from shoal.net.libp2p.thread.shared_state import SharedState

HEARD_MAX: Final = 256
QUESTION_MS: Final = 1_000
PORT: Final = 4_001
LOOPBACK: Final = "127.0.0.1"
NOWHERE: Final = LOOPBACK
"""A service must have a port and a host. The addresses in the text are what counts."""

_FIELD: Final = b"dnsaddr="


def service_type(shoal: str) -> str:
    """Return the name that members of a shoal look for; it reveals nothing."""
    digest = hashlib.sha256(b"shoal-mdns-v1\0" + shoal.encode()).hexdigest()
    return f"_p2p-{digest[:10]}._udp.local."


def interfaces_of(addresses: tuple[str, ...]) -> list[str] | InterfaceChoice:
    """Return where to say that we are here: not beyond where we can be reached."""
    if addresses and all(address_book.is_only_here(address) for address in addresses):
        return [LOOPBACK]
    return InterfaceChoice.All


def text_record(addresses: tuple[str, ...]) -> bytes:
    """Return the text of a service: strings with their lengths before them."""
    texts = [_FIELD + address.encode() for address in addresses]
    fit = [text for text in texts if len(text) < 256]
    return b"".join(bytes((len(text),)) + text for text in fit)


def read_text_record(text: bytes) -> tuple[str, ...]:
    """Return the addresses in the text of a service; what is not one is left out."""
    addresses: list[str] = []
    start = 0
    while start < len(text) and len(addresses) < ADDRESSES_MAX:
        end = start + 1 + text[start]
        field = text[start + 1 : end]
        if field.startswith(_FIELD) and field.isascii():
            addresses.append(field.removeprefix(_FIELD).decode())
        start = end
    return tuple(addresses)


@final
class HeardService(ServiceListener):
    """Who is on the local network. Filled by a thread of zeroconf."""

    def __init__(self, own_name: str) -> None:
        self._own_name = own_name
        self._lock = threading.Lock()
        self._peers: dict[NodeId, tuple[str, ...]] = {}  # at most HEARD_MAX

    def peers(self) -> list[tuple[NodeId, tuple[str, ...]]]:
        """Return everybody that was heard, and where."""
        with self._lock:
            return list(self._peers.items())

    def add_service(self, zc: Zeroconf, type_: str, name: str) -> None:
        """Note a service that has come."""
        info = None if name == self._own_name else _asked(zc, type_, name)
        if info is None:
            return
        for address in read_text_record(info.text):
            peer = address_book.peer_of(address)
            with self._lock:
                if peer is not None and len(self._peers) < HEARD_MAX:
                    known = self._peers.get(peer, ())
                    merged = tuple(dict.fromkeys((address, *known)))
                    self._peers[peer] = merged[:ADDRESSES_MAX]

    def update_service(self, zc: Zeroconf, type_: str, name: str) -> None:
        """Note what has changed."""
        self.add_service(zc, type_, name)

    def remove_service(self, zc: Zeroconf, type_: str, name: str) -> None:
        """Leave it: whether the peer is really gone shows when it is dialled."""


@final
class Mdns:
    """Our place on the local network; an empty one if that is off or fails."""

    def __init__(self, shared: SharedState) -> None:
        self._shared = shared
        self._type = service_type(shared.settings.shoal)
        self._name = f"{secrets.token_hex(16)}.{self._type}"
        self._heard = HeardService(self._name)
        self._zeroconf: Zeroconf | None = None

    def peers(self) -> list[tuple[NodeId, tuple[str, ...]]]:
        """Return everybody that was heard, and where."""
        return self._heard.peers()

    async def __aenter__(self) -> Self:
        if self._shared.settings.mdns:
            try:
                self._zeroconf = await in_thread(self._start)
            except (OSError, ZeroconfError, NonUniqueNameException):
                self._shared.counts["mdns-failed"] += 1
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._zeroconf is not None:
            with shielded():
                await in_thread(self._zeroconf.close)

    def _start(self) -> Zeroconf:
        shown = self._shared.shown()
        zeroconf = Zeroconf(interfaces=interfaces_of(shown))
        owned = tuple(f"{address}/p2p/{self._shared.node}" for address in shown)
        info = ServiceInfo(
            self._type,
            self._name,
            PORT,
            properties=text_record(owned),
            server=f"{self._name.partition('.')[0]}.local.",
            parsed_addresses=[NOWHERE],  # Without one, nobody takes it for complete.
        )
        zeroconf.register_service(info)
        zeroconf.add_service_listener(self._type, self._heard)
        return zeroconf


def _asked(zc: Zeroconf, type_: str, name: str) -> ServiceInfo | None:
    try:
        return zc.get_service_info(type_, name, QUESTION_MS)
    except (OSError, ZeroconfError):
        return None
