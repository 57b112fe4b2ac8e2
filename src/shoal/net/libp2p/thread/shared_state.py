"""State shared by both threads and by successive hosts."""

from __future__ import annotations

import threading
from collections import Counter, deque
from time import monotonic
from typing import TYPE_CHECKING, Final, Generic, TypeVar, final

from shoal.net.libp2p.finding.address_book import PeerAddressBook, shown_direct
from shoal.net.libp2p.finding.gossip_guard import GossipGuard

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.model.ids import NodeId
    from shoal.net.identity.identity import Identity
    from shoal.net.libp2p.settings import Greeting, Libp2pSettings
    from shoal.net.libp2p.thread.notices import Happening
    from shoal.net.libp2p.thread.thread import Libp2pThread

    Order = Callable[[Libp2pThread], None]
    """What the node has the thread of libp2p do, when its host is up."""

T = TypeVar("T")


@final
class ThreadChannel(Generic[T]):
    """Hands things over in order; what finds it full is dropped and counted.

    The receiver is woken once and then takes batches until nothing is left, so a busy
    lane costs one wake-up for many things.
    """

    def __init__(self, limit: int) -> None:
        self.dropped = 0
        self._limit = limit
        self._items: deque[T] = deque()
        self._lock = threading.Lock()
        self._wake: Callable[[], None] | None = None
        self._awake = False  # The receiver will take all there is, unasked.

    def attach(self, wake: Callable[[], None]) -> None:
        """Wake the receiver by `wake` from now on, and at once if something waits."""
        with self._lock:
            self._wake = wake
            self._awake = bool(self._items)
            waiting = self._awake
        if waiting:
            wake()

    def detach(self) -> None:
        """Queue without a receiver, within the limit."""
        with self._lock:
            self._wake = None
            self._awake = False

    def put(self, item: T) -> bool:
        """Add `item`; return False if there is no room for it."""
        with self._lock:
            if len(self._items) >= self._limit:
                self.dropped += 1
                return False
            self._items.append(item)
            wake = None if self._awake else self._wake
            self._awake = self._awake or wake is not None
        if wake is not None:
            wake()
        return True

    def take(self, most: int) -> list[T]:
        """Return the next few things. Fewer than `most`: the next one wakes again."""
        with self._lock:
            count = min(most, len(self._items))
            items = [self._items.popleft() for _ in range(count)]
            if count < most:
                self._awake = False
        return items

    @property
    def full(self) -> bool:
        """Whether the next thing would be dropped."""
        return len(self._items) >= self._limit

    def __len__(self) -> int:
        return len(self._items)


ORDERS_MAX: Final = 4_096
HAPPENINGS_MAX: Final = 4_096
BATCH: Final = 64
"""Things that one turn of either loop takes over, so that others get theirs."""


@final
class SharedState:
    """State that outlives a host. All but the lanes belong to the thread of trio."""

    def __init__(
        self, identity: Identity, settings: Libp2pSettings, greeting: Greeting
    ) -> None:
        self.node = identity.node
        self.seed = identity.key.private_bytes_raw()
        self.settings = settings
        self.greeting = greeting
        self.orders: ThreadChannel[Order] = ThreadChannel(ORDERS_MAX)
        self.notices: ThreadChannel[Happening] = ThreadChannel(HAPPENINGS_MAX)
        self.leaving = threading.Event()
        self.counts: Counter[str] = Counter()
        self.nodes = 1  # in the shoal, about, by the density of the DHT
        self.guard = GossipGuard(monotonic())
        self.book = PeerAddressBook()
        self.listen = settings.listen  # With real ports, once they are known.
        self.reachable = settings.announce  # the same for others, once it is known
        self.keys: tuple[str, ...] = ()
        self.linked: dict[NodeId, None] = {}  # members with a direct link, in order
        self.circuits: tuple[str, ...] = ()  # addresses of ours through gates

    def shown(self) -> tuple[str, ...]:
        """Return the addresses that others are told, without our id."""
        plain = self.settings.announce or self.reachable
        direct = (shown_direct(address) for address in self.settings.direct)
        return (*plain, *direct, *self.circuits)
