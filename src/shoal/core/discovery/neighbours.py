"""The machine that keeps a node linked to other members.

Theory of operation. It works without libp2p, gossip or a DHT. From `NetworkOpened` on,
a node links to its gates and earlier neighbours (`known_members`), asks linked peers
for other members, and links to those until it has `LINKS_WANTED`:

- to a new neighbour -> `PeersWanted`, with our own addresses; also when these change.
- `PeersKnown` of a gate -> the members that it names are linked to.
- `PeersWanted` of a neighbour -> its addresses are remembered for the next life.
- `Announcement` -> the scheduler that announces can be dialled from now on.

While it has fewer than `LINKS_FEW` links it tries all known members, and asks a few
neighbours, every `KNOCK_S`; otherwise every `ASK_S`. A small shoal is fully linked. In
a larger one, a node with `LINKS_WANTED` tries only its gates and one known member, by
chance: links cost, but two halves of a shoal that was cut must find each other again.

The host keeps the members that were met (`KeepMembers`); all else is forgotten in a
crash. Bounded are the gates and the members known, and the links that it opens itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from shoal.core.discovery.events import (
    ExpectCompany,
    KeepMembers,
    LearnAddresses,
    NetworkOpened,
    PeerMet,
    ReachPeer,
)
from shoal.core.events import (
    AddressesChanged,
    DeadlineReached,
    MessageReceived,
    PeerConnected,
    PeerLost,
    Send,
)
from shoal.core.machine import Mount
from shoal.model.ids import RequestId
from shoal.protocol.limits import ADDRESSES_MAX
from shoal.protocol.messages import Announcement, PeersKnown, PeersWanted

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random
    from typing import Any

    from shoal.core.discovery.known_members import KnownMembers
    from shoal.core.events import Effect, Event
    from shoal.model.ids import NodeId

KNOCK_S: Final = 5.0
"""Between two attempts to reach known members, while there are few links."""

ASK_S: Final = 60.0
"""Time between two requests for members while there are enough links."""

LINKS_FEW: Final = 3
LINKS_WANTED: Final = 16
"""Links that a node opens itself; peers may open more to it."""

SMALL_SHOAL: Final = 64
"""A node that knows no more members than these tries to link to all of them."""

PEERS_WANTED: Final = 16
GATES_MAX: Final = 64


@final
class Neighbours:
    """Decides which members a node links to, and whom it asks for others."""

    mount = Mount(
        takes=dict.fromkeys((PeersWanted, PeersKnown, Announcement)),
        hears=(NetworkOpened, PeerMet),
    )

    def __init__(
        self, node: NodeId, known: KnownMembers, rng: Random, *, asks: bool = True
    ) -> None:
        """Link to `known` members; look for others only if `asks`."""
        self.known = known
        self.gates: dict[NodeId, tuple[str, ...]] = {}  # linked ones, and where
        self._node = node
        self._rng = rng
        self._asks = asks
        self._relays = False
        self._linked: dict[NodeId, None] = {}
        self._addresses: tuple[str, ...] = ()
        self._requests = 0
        self._knock_at: float | None = None  # None until the network is open
        self._asked_at = 0.0
        self._takers: dict[type, Callable[[Any, float], list[Effect]]] = {
            NetworkOpened: self._on_opened,
            AddressesChanged: self._on_addresses_changed,
            PeerConnected: self._on_connected,
            PeerLost: self._on_lost,
            PeerMet: self._on_met,
            MessageReceived: self._on_message,
            DeadlineReached: self._on_deadline,
        }

    @property
    def linked(self) -> tuple[NodeId, ...]:
        """The members that this node is linked to."""
        return tuple(self._linked)

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take in one fact; return what to do about it. Raising is a bug."""
        take = self._takers.get(type(event))
        return [] if take is None else take(event, now)

    def next_deadline(self) -> float | None:
        """When to deliver `DeadlineReached`, if ever."""
        return self._knock_at

    # What the host tells.

    def _on_opened(self, event: NetworkOpened, now: float) -> list[Effect]:
        self._relays = event.relays
        self._knock_at = self._asked_at = now
        return []

    def _on_addresses_changed(self, event: AddressesChanged, _: float) -> list[Effect]:
        self._addresses = event.addresses
        return [self._ask(peer) for peer in self._linked if self._is_open]

    def _on_connected(self, event: PeerConnected, _: float) -> list[Effect]:
        is_first = not self._linked
        self._linked[event.peer] = None
        if not self._is_open:
            return []
        company: list[Effect] = [ExpectCompany()] if is_first else []
        return [*company, self._ask(event.peer)]

    def _on_lost(self, event: PeerLost, _: float) -> list[Effect]:
        self._linked.pop(event.peer, None)
        self.gates.pop(event.peer, None)
        return []

    def _on_met(self, event: PeerMet, _: float) -> list[Effect]:
        """Link to a node of the local network; whether it is a member shows then."""
        learned = LearnAddresses(event.peer, event.addresses)
        return [learned, *(self._befriend(event.peer) if self._asks else ())]

    def _on_deadline(self, _: DeadlineReached, now: float) -> list[Effect]:
        if self._knock_at is None or now < self._knock_at:
            return []
        self._knock_at = now + KNOCK_S
        is_due = now - self._asked_at >= ASK_S
        if is_due:
            self._asked_at = now
        return self._knock() if is_due or len(self._linked) < LINKS_FEW else []

    def _knock(self) -> list[Effect]:
        """Try all known members that are not linked; ask some that are for others.

        Not only one: it may never answer, and nobody would notice for a minute.
        """
        effects: list[Effect] = []
        unlinked = [each for each in self.known if each[0] not in self._linked]
        is_large = len(self._linked) + len(unlinked) > SMALL_SHOAL
        if is_large and not self._wants_more():
            gates = self.known.gates
            others = [each for each in unlinked if each[0] not in gates]
            one = [self._rng.choice(others)] if others else []
            unlinked = [each for each in unlinked if each[0] in gates] + one
        for peer, addresses in unlinked:
            effects += [LearnAddresses(peer, addresses), ReachPeer(peer)]
        some = min(LINKS_FEW, len(self._linked))
        asked = self._rng.sample(tuple(self._linked), some)
        return effects + [self._ask(peer) for peer in asked]

    # What members say.

    def _on_message(self, event: MessageReceived, _: float) -> list[Effect]:
        peer, message = event.peer, event.message
        match message:
            case PeersWanted():
                return self._on_wanted(peer, message)
            case PeersKnown():
                return self._on_named(peer, message)
            case Announcement():
                is_own = message.scheduler == peer
                return self._learn(peer, message.addresses) if is_own else []
            case _:
                return []

    def _on_wanted(self, peer: NodeId, wanted: PeersWanted) -> list[Effect]:
        if wanted.relays and len(self.gates) < GATES_MAX:
            self.gates[peer] = wanted.addresses
        return self._learn(peer, wanted.addresses)

    def _on_named(self, peer: NodeId, known: PeersKnown) -> list[Effect]:
        effects: list[Effect] = []
        for named in known.peers:
            if self._asks:
                effects += self._learn(named.node, named.addresses)
                effects += self._befriend(named.node)
            elif named.node == peer:
                effects += self._learn(peer, named.addresses)
        return effects

    def _learn(self, peer: NodeId, addresses: tuple[str, ...]) -> list[Effect]:
        if peer == self._node or not addresses:
            return []
        effects: list[Effect] = [LearnAddresses(peer, addresses)]
        is_neighbour = self._is_open and peer in self._linked
        if is_neighbour and self.known.note(peer, addresses):
            effects.append(KeepMembers(self.known.met))
        return effects

    def _befriend(self, peer: NodeId) -> list[Effect]:
        is_wanted = self._wants_more() and peer not in (self._node, *self._linked)
        return [ReachPeer(peer)] if is_wanted else []

    def _wants_more(self) -> bool:
        return len(self._linked) < LINKS_WANTED

    def _ask(self, peer: NodeId) -> Effect:
        self._requests += 1
        wanted = PeersWanted(
            request=RequestId(f"{self._node}/peers/{self._requests}"),
            count=PEERS_WANTED if self._asks else 0,
            addresses=self._addresses[:ADDRESSES_MAX],
            relays=self._relays,
        )
        return Send(peer, wanted)

    @property
    def _is_open(self) -> bool:
        return self._knock_at is not None
