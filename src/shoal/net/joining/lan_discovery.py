"""Find shoals on the local network, for machines that want to join one.

Members find each other by a service whose name only they know
(`net.libp2p.finding.mdns`). This service is public: a node that may admit others
announces its address and the name of its shoal. Anybody can forge that; only the code
that people compare counts (`net.joining.join_requests`).
"""

from __future__ import annotations

import secrets
import threading
from typing import TYPE_CHECKING, Final, NamedTuple, final

from zeroconf import Error as ZeroconfError
from zeroconf import InterfaceChoice, ServiceInfo, ServiceListener, Zeroconf

from shoal.errors import UsageError
from shoal.model.ids import NodeId
from shoal.model.text.bounds import NAME_LENGTH_MAX
from shoal.net import multiaddr
from shoal.net.identity.identity import public_key
from shoal.net.identity.petname import petname

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SERVICE: Final = "_shoal-join._tcp.local."
ADDRESSES_TOLD_MAX: Final = 4
HEARD_MAX: Final = 32
QUESTION_MS: Final = 1_000
_NOWHERE: Final = "127.0.0.1"  # A service must have a host; the text is what counts.


class Near(NamedTuple):
    """A node on the local network that announces its shoal."""

    node: NodeId
    shoal: str
    addresses: tuple[str, ...]

    @property
    def petname(self) -> str:
        """Its name for people."""
        return petname(self.node)


def announce(near: Near) -> Zeroconf:
    """Announce our shoal on the local network; blocks. Close the result.

    Raises `OSError` or `zeroconf.Error` if that cannot be done.
    """
    zeroconf = Zeroconf(interfaces=InterfaceChoice.All)
    name = secrets.token_hex(8)
    info = ServiceInfo(
        SERVICE,
        f"{name}.{SERVICE}",
        1,
        properties=_properties(near),
        server=f"{name}.local.",
        parsed_addresses=[_NOWHERE],
    )
    zeroconf.register_service(info)
    return zeroconf


@final
class Search(ServiceListener):
    """Collects announcements; filled by a thread of zeroconf."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._near: dict[NodeId, Near] = {}  # At most HEARD_MAX.
        self._zeroconf: Zeroconf | None = None

    def start(self) -> None:
        """Start listening; blocks. Raises like `announce`."""
        self._zeroconf = Zeroconf(interfaces=InterfaceChoice.All)
        self._zeroconf.add_service_listener(SERVICE, self)

    def close(self) -> None:
        """Stop listening; blocks."""
        if self._zeroconf is not None:
            self._zeroconf.close()

    def found(self) -> list[Near]:
        """Return the announcements so far, by node."""
        with self._lock:
            return [self._near[node] for node in sorted(self._near)]

    def add_service(self, zc: Zeroconf, type_: str, name: str) -> None:
        """Note who is there."""
        try:
            info = zc.get_service_info(type_, name, QUESTION_MS)
        except (OSError, ZeroconfError):
            return
        near = read(info.properties) if info is not None else None
        with self._lock:
            if near is not None and len(self._near) < HEARD_MAX:
                self._near[near.node] = near

    def update_service(self, zc: Zeroconf, type_: str, name: str) -> None:
        """Note what has changed."""
        self.add_service(zc, type_, name)

    def remove_service(self, zc: Zeroconf, type_: str, name: str) -> None:
        """Ignore it: a node that is gone will not answer."""


def _properties(near: Near) -> dict[str, str]:
    told: Sequence[str] = near.addresses[:ADDRESSES_TOLD_MAX]
    where = {f"a{number}": address for number, address in enumerate(told)}
    return {"id": near.node, "shoal": near.shoal, **where}


def read(properties: Mapping[bytes, bytes | None]) -> Near | None:
    """Parse an announcement; None if any part is unreadable."""
    try:
        fields = {
            key.decode(): (text or b"").decode() for key, text in properties.items()
        }
        node, shoal = NodeId(fields["id"]), fields["shoal"]
        public_key(node)
        where = [
            fields[f"a{n}"] for n in range(ADDRESSES_TOLD_MAX) if f"a{n}" in fields
        ]
        addresses = tuple(str(multiaddr.parse(address)) for address in where)
    except (KeyError, ValueError, UsageError):
        return None
    if not addresses or len(shoal) > NAME_LENGTH_MAX or not shoal.isprintable():
        return None
    return Near(node, shoal, addresses)
