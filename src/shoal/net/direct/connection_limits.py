"""Limits on connections from peers that have not proved membership yet.

A handshake costs us a few milliseconds and some tens of kilobytes, and the other side
almost nothing. So each address may start a limited number per second, and the number
of unproved connections is limited. At the limit, the oldest one is closed: an honest
peer is admitted within milliseconds, and a flood pushes out itself.
"""

from __future__ import annotations

import ipaddress
from typing import Final, Generic, NamedTuple, TypeVar, final

WAITING_MAX: Final = 128
WAITING_PER_ADDRESS_MAX: Final = 64
ARRIVALS_PER_S: Final = 32.0
ARRIVALS_BURST: Final = 128.0
ADDRESSES_MAX: Final = 4_096
_IP6_PREFIX: Final = 64

Caller = TypeVar("Caller")


class ConnectionPace(NamedTuple):
    """How fast one address may start connections."""

    per_s: float = ARRIVALS_PER_S
    burst: float = ARRIVALS_BURST


USUAL: Final = ConnectionPace()


@final
class _Allowance:
    """Connections that an address may start now; refilled over time."""

    __slots__ = ("left", "since")

    def __init__(self, now: float, burst: float) -> None:
        self.left = burst
        self.since = now

    def spend(self, now: float, pace: ConnectionPace) -> bool:
        grown = self.left + (now - self.since) * pace.per_s
        self.left, self.since = min(pace.burst, grown), now
        if self.left < 1:
            return False
        self.left -= 1
        return True


@final
class ConnectionLimits(Generic[Caller]):
    """Tracks unproved connections by address, and decides which to close."""

    def __init__(self, pace: ConnectionPace = USUAL) -> None:
        self._pace = pace
        self._waiting: dict[Caller, str] = {}  # In the order of arrival.
        self._allowances: dict[str, _Allowance] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def arrive(self, caller: Caller, address: str, now: float) -> list[Caller]:
        """Add a connection; return the one to close for it, if any.

        That may be the new one itself.
        """
        origin = origin_of(address)
        if not self._allowance(origin, now).spend(now, self._pace):
            return [caller]
        self._waiting[caller] = origin
        crowd = [one for one, place in self._waiting.items() if place == origin]
        if len(crowd) > WAITING_PER_ADDRESS_MAX:
            return [self._send_away(crowd[0])]
        if len(self._waiting) > WAITING_MAX:
            return [self._send_away(self._first_of_largest_crowd())]
        return []

    def leave(self, caller: Caller) -> None:
        """Forget a connection that is admitted or gone."""
        self._waiting.pop(caller, None)

    def _send_away(self, caller: Caller) -> Caller:
        del self._waiting[caller]
        return caller

    def _first_of_largest_crowd(self) -> Caller:
        sizes: dict[str, int] = {}
        for origin in self._waiting.values():
            sizes[origin] = sizes.get(origin, 0) + 1
        return max(self._waiting, key=lambda one: sizes[self._waiting[one]])

    def _allowance(self, origin: str, now: float) -> _Allowance:
        allowance = self._allowances.pop(origin, None)
        allowance = allowance or _Allowance(now, self._pace.burst)
        if len(self._allowances) >= ADDRESSES_MAX:
            del self._allowances[next(iter(self._allowances))]
        self._allowances[origin] = allowance
        return allowance


def origin_of(address: str) -> str:
    """Return the unit to limit: an IPv4 host, or an IPv6 network."""
    match ip_of(address):
        case None:
            return "unknown"
        case ipaddress.IPv4Address() as found:
            return str(found)
        case found:
            return str(ipaddress.ip_network((found, _IP6_PREFIX), strict=False))


def ip_of(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Parse the address of a socket, without its zone, as IPv4 if it is mapped.

    None if it is not an address.
    """
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found
