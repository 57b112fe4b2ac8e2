"""The gate machine: introduces members to each other and relays for nodes behind NAT.

Theory of operation. A member that connects is remembered. `PeersWanted` is answered
with a random sample of the members known and their addresses. `ReservationWanted`
reserves a place on the relay for `valid_for_s`; when all places are taken, the answer
is a refusal with numbers. A member that leaves, or whose link breaks, is forgotten.

Nothing is durable: a gate that restarts meets its members again. At most
`MEMBERS_KNOWN_MAX` members are remembered; the oldest without a reservation goes first.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, final, get_args

import msgspec

from shoal.core.deadlines import Deadlines
from shoal.core.events import (
    AddressesChanged,
    DeadlineReached,
    Effect,
    Event,
    MessageReceived,
    PeerConnected,
    PeerLost,
    Send,
)
from shoal.core.machine import Mount
from shoal.model.ids import NodeId
from shoal.protocol.messages import (
    Goodbye,
    PeerAddress,
    PeersKnown,
    PeersWanted,
    Refusal,
    Reservation,
    ReservationWanted,
    ToGate,
)

if TYPE_CHECKING:
    from random import Random

    from shoal.protocol.messages import AnyMessage

MEMBERS_KNOWN_MAX: Final = 4_096
PEERS_NAMED_MAX: Final = 32


class RelayLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a gate's relay. No single member can use all of it."""

    reservations_max: int = 256
    valid_for_s: float = 3_600.0
    bytes_max: int = 1 << 30
    circuits_max: int = 16


class _Known(msgspec.Struct):
    addresses: tuple[str, ...] = ()
    reserved: bool = False


@final
class Gate:
    """Decides which members a gate names and relays for."""

    mount = Mount(takes=dict.fromkeys(get_args(ToGate)))

    def __init__(
        self, node: NodeId, *, limits: RelayLimits | None = None, rng: Random
    ) -> None:
        self.node = node
        self.limits = limits or RelayLimits()
        self.counts: Counter[str] = Counter()
        self._rng = rng
        self._known: dict[NodeId, _Known] = {}
        self._reservations: Deadlines[NodeId] = Deadlines()
        self._addresses: tuple[str, ...] = ()  # where this node can be reached

    @property
    def reserved(self) -> tuple[NodeId, ...]:
        """The members that hold a reservation."""
        return tuple(node for node, known in self._known.items() if known.reserved)

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take in one fact; return what to do about it. Raising is a bug."""
        match event:
            case PeerConnected():
                self._on_peer_connected(event.peer)
            case PeerLost():
                self._forget(event.peer)
            case MessageReceived():
                return self._on_message(event.peer, event.message, now)
            case DeadlineReached():
                for node in self._reservations.pop_due(now):
                    self._known[node].reserved = False
            case AddressesChanged():
                self._addresses = event.addresses
            case _:
                pass  # A fact for another role of this node.
        return []

    def next_deadline(self) -> float | None:
        """When to deliver `DeadlineReached`, if ever."""
        return self._reservations.next()

    def _on_peer_connected(self, peer: NodeId) -> None:
        if peer not in self._known and len(self._known) >= MEMBERS_KNOWN_MAX:
            self._forget_one()
        self._known.setdefault(peer, _Known())

    def _on_message(
        self, peer: NodeId, message: AnyMessage, now: float
    ) -> list[Effect]:
        match message:
            case PeersWanted():
                if peer in self._known and message.addresses:
                    self._known[peer].addresses = message.addresses
                return [Send(peer, self._name_peers(peer, message))]
            case ReservationWanted():
                return [self._on_reservation_wanted(peer, message, now)]
            case Goodbye():
                self._forget(peer)
                return []
            case _:
                self.counts[f"ignored:{type(message).__name__}"] += 1
                return []

    def _name_peers(self, peer: NodeId, wanted: PeersWanted) -> PeersKnown:
        others = [node for node in self._known if node != peer]
        count = max(0, min(wanted.count, PEERS_NAMED_MAX, len(others)))
        itself = [PeerAddress(self.node, self._addresses)] if self._addresses else []
        return PeersKnown(
            request=wanted.request,
            peers=(
                *itself,
                *(
                    PeerAddress(node, self._known[node].addresses)
                    for node in sorted(self._rng.sample(others, count))
                ),
            ),
        )

    def _on_reservation_wanted(
        self, peer: NodeId, wanted: ReservationWanted, now: float
    ) -> Effect:
        known = self._known.get(peer)
        if known is None:
            return Send(peer, Refusal(request=wanted.request, reason="not connected"))
        most = self.limits.reservations_max
        if not known.reserved and len(self._reservations) >= most:
            reason = f"{most} of {most} reservations are taken"
            refusal = Refusal(request=wanted.request, reason=reason)
            return Send(peer, refusal)
        known.reserved = True
        known.addresses = wanted.addresses
        self._reservations.set(peer, now + self.limits.valid_for_s)
        reservation = Reservation(
            request=wanted.request,
            valid_for_s=self.limits.valid_for_s,
            bytes_max=self.limits.bytes_max,
            circuits_max=self.limits.circuits_max,
        )
        return Send(peer, reservation)

    def _forget_one(self) -> None:
        """Forget the oldest member without a reservation."""
        for node, known in self._known.items():
            if not known.reserved:
                self._forget(node)
                return
        self._forget(next(iter(self._known)))

    def _forget(self, node: NodeId) -> None:
        if self._known.pop(node, None) is not None:
            self._reservations.drop(node)
