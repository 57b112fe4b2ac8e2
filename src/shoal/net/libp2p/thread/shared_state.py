"""State shared by both threads and by successive hosts."""

from __future__ import annotations

import threading
from collections import Counter
from time import monotonic
from typing import TYPE_CHECKING, Final, final

from shoal.net.libp2p.finding.address_book import PeerAddressBook, shown_direct
from shoal.net.libp2p.finding.gossip_guard import GossipGuard
from shoal.net.libp2p.thread.thread_channel import ThreadChannel

if TYPE_CHECKING:
    from shoal.model.ids import NodeId
    from shoal.net.identity.identity import Identity
    from shoal.net.libp2p.settings import Greeting, Libp2pSettings
    from shoal.net.libp2p.thread.commands import Happening, Order

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
        self.guard = GossipGuard(monotonic())
        self.book = PeerAddressBook()
        self.listen = settings.listen  # With real ports, once they are known.
        self.reachable = settings.announce  # the same for others, once it is known
        self.keys: tuple[str, ...] = ()
        self.linked: dict[NodeId, None] = {}  # members with a direct link, in order
        self.direct = settings.direct  # where direct links are accepted
        self.circuits: tuple[str, ...] = ()  # addresses of ours through gates

    def shown(self) -> tuple[str, ...]:
        """Return the addresses that others are told, without our id."""
        plain = self.settings.announce or self.reachable
        return (*plain, *(shown_direct(a) for a in self.direct), *self.circuits)
