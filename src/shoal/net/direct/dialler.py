"""Dial a peer: known addresses, order of attempts, and back-off."""

from __future__ import annotations

import asyncio
import functools
import socket
from typing import TYPE_CHECKING, Final, NamedTuple, final

from shoal.errors import ShoalError, UsageError
from shoal.model.backoff import Backoff
from shoal.net import multiaddr
from shoal.protocol.limits import ADDRESSES_MAX

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from random import Random

    from shoal.model.ids import NodeId
    from shoal.net.direct.settings import LinkSettings
    from shoal.net.multiaddr import Multiaddr

PEERS_KNOWN_MAX: Final = 16_384
ENDPOINTS_MAX: Final = 16
"""Addresses that are tried in one round."""

STAGGER_S: Final = 0.25
"""Head start of each address before the next is tried as well."""

RESOLVE_S: Final = 3.0
REDIAL: Final = Backoff(0.25, 15.0, spread=(0.5, 1.0))


class Endpoint(NamedTuple):
    """A resolved address that a socket can connect to."""

    family: socket.AddressFamily
    host: str
    port: int


@final
class AddressBook:
    """Addresses of peers as told by others. All of them are hints."""

    def __init__(self, peers_max: int = PEERS_KNOWN_MAX) -> None:
        self._peers_max = peers_max
        # Those told of last are last; each has ADDRESSES_MAX at most.
        self._known: dict[NodeId, tuple[Multiaddr, ...]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def add(self, peer: NodeId, addresses: Sequence[str]) -> int:
        """Remember addresses of a peer, latest first; return how many were bad."""
        told = [_address(peer, text) for text in addresses[:ADDRESSES_MAX]]
        good = [address for address in told if address is not None]
        if good:
            older = self._known.pop(peer, ())
            if len(self._known) >= self._peers_max:
                del self._known[next(iter(self._known))]
            merged = dict.fromkeys([*good, *older])
            self._known[peer] = tuple(merged)[:ADDRESSES_MAX]
        return len(addresses) - len(good)

    def get(self, peer: NodeId) -> tuple[Multiaddr, ...]:
        """Return the addresses of a peer, likeliest first."""
        return self._known.get(peer, ())


@final
class Dialler:
    """Dials peers, again and again until told to stop.

    `connect` tries one address and returns when there is a link. `missed` is called
    when no address led to the peer; a caller that still wants a link calls
    `start_later`.
    """

    def __init__(
        self,
        connect: Callable[[NodeId, Endpoint], Awaitable[None]],
        missed: Callable[[NodeId, str], None],
        settings: LinkSettings,
        random: Random,
    ) -> None:
        self.book: Final = AddressBook()
        self._connect = connect
        self._missed = missed
        self._settings = settings
        self._random = random
        self._slots = asyncio.Semaphore(settings.dials_max)
        # By peer, for those only whom somebody wants to reach.
        self._tasks: dict[NodeId, asyncio.Task[None]] = {}
        self._retries: dict[NodeId, asyncio.TimerHandle] = {}
        self._failures: dict[NodeId, int] = {}
        self._stopped: set[asyncio.Task[None]] = set()

    def is_busy(self, peer: NodeId) -> bool:
        """Return whether a peer is being dialled, or will be soon."""
        return peer in self._tasks or peer in self._retries

    def start(self, peer: NodeId) -> None:
        """Dial a peer, unless a dial is running or planned."""
        if not self.is_busy(peer):
            task = asyncio.get_running_loop().create_task(self._dial(peer))
            self._tasks[peer] = task

    def start_later(self, peer: NodeId) -> None:
        """Dial a peer after a back-off that grows with every failure."""
        if self.is_busy(peer) or not self.book.get(peer):
            return
        failures = self._failures.get(peer, 0) + 1
        self._failures[peer] = failures
        delay_s = REDIAL.pause_s(failures, self._random)
        loop = asyncio.get_running_loop()
        self._retries[peer] = loop.call_later(delay_s, self._again, peer)

    def hurry(self, peer: NodeId) -> None:
        """Dial now instead of later, because there is a new address."""
        if (retry := self._retries.get(peer)) is not None:
            retry.cancel()
            self._again(peer)

    def stop(self, peer: NodeId) -> None:
        """Stop dialling a peer: there is a link, or nothing to send."""
        self._failures.pop(peer, None)
        if (retry := self._retries.pop(peer, None)) is not None:
            retry.cancel()
        if (task := self._tasks.pop(peer, None)) is not None:
            task.cancel()
            self._stopped.add(task)
            task.add_done_callback(self._stopped.discard)

    def arrive(self, peer: NodeId) -> None:
        """Note that an attempt of ours became the link; it ends the others itself."""
        self._failures.pop(peer, None)

    async def close(self) -> None:
        """Stop all dials and wait until they have ended."""
        for peer in [*self._tasks, *self._retries]:
            self.stop(peer)
        await asyncio.gather(*self._stopped, return_exceptions=True)

    def _again(self, peer: NodeId) -> None:
        del self._retries[peer]
        self.start(peer)

    async def _dial(self, peer: NodeId) -> None:
        why = ""
        try:
            async with self._slots, asyncio.timeout(self._settings.dial_s):
                places = await resolve(self.book.get(peer))
                await race([functools.partial(self._connect, peer, p) for p in places])
        except (ShoalError, OSError) as error:
            why = str(error) or "timed out"
        if self._tasks.get(peer) is asyncio.current_task():
            del self._tasks[peer]
            self._missed(peer, why)


def _address(peer: NodeId, text: str) -> Multiaddr | None:
    try:
        address = multiaddr.parse(text)
    except UsageError:
        return None
    if address.node not in (None, peer):
        return None
    return address._replace(node=None)


async def resolve(addresses: Sequence[Multiaddr]) -> list[Endpoint]:
    """Resolve addresses, in order and without duplicates.

    A name that cannot be resolved in time is left out.
    """
    found = await asyncio.gather(*map(_resolve_one, addresses))
    places = dict.fromkeys(place for places in found for place in places)
    return list(places)[:ENDPOINTS_MAX]


async def _resolve_one(address: Multiaddr) -> list[Endpoint]:
    if address.kind in ("ip4", "ip6"):
        return [Endpoint(address.family, address.host, address.port)]
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(RESOLVE_S):
            infos = await loop.getaddrinfo(
                address.host,
                address.port,
                family=address.family,
                type=socket.SOCK_STREAM,
            )
    except (OSError, UnicodeError, TimeoutError):
        return []
    return [Endpoint(info[0], str(info[4][0]), int(info[4][1])) for info in infos]


async def race(
    attempts: Sequence[Callable[[], Awaitable[None]]], stagger_s: float = STAGGER_S
) -> None:
    """Start attempts one after another, sooner if one fails; the first success wins.

    Raises `ShoalError` with all reasons if none does. Those that lose are cancelled,
    and all have ended when this returns.
    """
    reasons: list[str] = []
    waiting = list(reversed(attempts))
    running: set[asyncio.Task[None]] = set()
    try:
        while waiting or running:
            if waiting:
                running.add(asyncio.ensure_future(_run(waiting.pop())))
            done, running = await asyncio.wait(
                running,
                timeout=stagger_s if waiting else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            for task in done:
                error = task.exception()
                if error is None:
                    return
                if not isinstance(error, ShoalError | OSError):
                    raise error
                reasons.append(str(error))
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    raise ShoalError("no way led there", because="; ".join(reasons) or "none is known")


async def _run(attempt: Callable[[], Awaitable[None]]) -> None:
    await attempt()
