"""Gang rendezvous: the first task tells the others where, by mail.

The first task of the gang takes a free port and tells it to every task that asks. So
two gangs on one machine never want the same port, and no task waits at an old address.
Before they meet, first and other dial each other: who cannot is told so at once.
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple, final

from shoal.errors import ShoalError, UsageError
from shoal.interfaces import address_towards, is_loopback
from shoal.train.gangs import reachability

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from shoal.train.exchange import TaskMailbox

ASK: Final = b"where?"
HERE: Final = b"here:"
KNOCK: Final = b"knock:"
HEARD: Final = b"heard:"
ASK_AGAIN_S: Final = 1.0
GIVE_UP_S: Final = 300.0


class RendezvousPlace(NamedTuple):
    """Where a gang meets, and a port to test the way to the first task."""

    host: str
    port: int
    door: int


class Meeting(NamedTuple):
    """One task's rendezvous with the others."""

    own: str  # its address
    host: str
    port: int
    is_host: bool


@contextmanager
def meet(exchange: TaskMailbox, environment: Mapping[str, str]) -> Generator[Meeting]:
    """Say where the gang meets, if this is its first task, or find out.

    Raises `UsageError` if this task and the first cannot dial each other.
    """
    first = f"{exchange.name.rpartition('.')[0]}.0"
    own = own_address(environment)
    with reachability.ReachabilityDoor(exchange.name) as door:
        if exchange.name != first:
            place = find(exchange, first)
            if is_loopback(own) or not is_loopback(place.host):
                own = address_towards(place.host)
            check(exchange, first, place, own, door.port)
            yield Meeting(own, place.host, place.port, is_host=False)
            return
        port = free_port(own)
        host = RendezvousHost(exchange, RendezvousPlace(own, port, door.port))
        try:
            yield Meeting(own, own, port, is_host=True)
        finally:
            host.close()


def free_port(host: str) -> int:
    """Return a port that is free now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            probe.bind(("", 0))  # Others reach it at an address that is a router's.
        return int(probe.getsockname()[1])


def own_address(environment: Mapping[str, str]) -> str:
    """Return this node's address for the others, as the scheduler gave it."""
    addresses = environment.get("NODE_IPS", "").split("\n")
    rank = int(environment.get("NODE_RANK", "0"))
    told = addresses[min(rank, len(addresses) - 1)]
    return address_towards() if not told or is_loopback(told) else told


@final
class RendezvousHost:
    """Tells every task that asks where the gang meets, until it is closed."""

    def __init__(self, exchange: TaskMailbox, place: RendezvousPlace) -> None:
        self._exchange = exchange
        self._said = HERE + f"{place.host} {place.port} {place.door}".encode()
        self._dialled: dict[bytes, str] = {}  # with why it failed
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._answer, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop answering; from now on mail is for others."""
        self._ended.set()
        self._thread.join()

    def _answer(self) -> None:
        while not self._ended.is_set():
            mail = self._exchange.receive(timeout_s=ASK_AGAIN_S)
            if mail is None:
                continue
            if mail.data == ASK:
                self._exchange.send(mail.sender, self._said)
            elif mail.data.startswith(KNOCK):
                why = self._dial(mail.sender, mail.data)
                self._exchange.send(mail.sender, HEARD + why.encode())

    def _dial(self, sender: str, knock: bytes) -> str:
        """Dial a caller back, once; say why that fails, if it does."""
        if knock not in self._dialled:
            address, _, port = knock.removeprefix(KNOCK).decode().partition(" ")
            self._dialled[knock] = reachability.why_not(address, int(port), sender)
        return self._dialled[knock]


def find(exchange: TaskMailbox, first: str) -> RendezvousPlace:
    """Ask the first task of the gang where to meet; raise if it does not answer."""
    said = _asked(exchange, first, ASK, HERE)
    host, port, door = said.split(" ")
    return RendezvousPlace(host, int(port), int(door))


def check(
    exchange: TaskMailbox, first: str, place: RendezvousPlace, own: str, door: int
) -> None:
    """Raise `UsageError` unless this task and the first can dial each other."""
    one, other, at = exchange.name, first, place.host
    why = reachability.why_not(place.host, place.door, first)
    if not why:
        one, other, at = first, exchange.name, own
        why = _asked(exchange, first, KNOCK + f"{own} {door}".encode(), HEARD)
    if not why:
        return
    raise UsageError(
        f"{one} cannot dial {other} at {at}: {why}",
        because="torch connects all tasks of this recipe directly, past the relays",
        hint="use `recipe: diloco`, which needs no direct connections, or run it on "
        "machines of one network (`same_leaf: require`)",
    )


def _asked(exchange: TaskMailbox, first: str, question: bytes, answer: bytes) -> str:
    """Return the first task's answer, without its prefix."""
    until = time.monotonic() + GIVE_UP_S
    while time.monotonic() < until:
        exchange.send(first, question)
        asked = time.monotonic()
        while time.monotonic() < asked + ASK_AGAIN_S:
            mail = exchange.receive(timeout_s=ASK_AGAIN_S)
            if mail and mail.sender == first and mail.data.startswith(answer):
                return mail.data.removeprefix(answer).decode()
    raise ShoalError(
        f"{first} does not say where the gang meets",
        because=f"it did not answer for {GIVE_UP_S:.0f} s",
        hint="`shoal show` says whether it runs",
    )
