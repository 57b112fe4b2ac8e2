"""The machine that measures the network between this node and others.

Theory of operation. Links measure their round trips anyway, every 1 to 10 s
(`PathMeasured`). From them follows all that this machine does; it has no deadlines:

- The quickest of late counts: a busy processor only ever makes a round trip longer.
  After `TRIPS_MIN` of them the peer is told this node's `Position`, and again when that
  has changed by more than a little. At rest nothing is said.
- The position that a peer told, and the round trip to it, move our own (`coordinates`).
- Bytes that came from a peer say what the link carries (`bandwidth`): pieces of blobs
  (`TransferMeasured`), or a probe if there were none (`probing`). A probe is
  `ProbeWanted`, answered by `ProbePiece` or by silence.
- From all positions follow the sites (`network_map`), which the scheduler of this node
  hears of (`SitesChanged`), and with which gangs are placed.

A peer speaks only for itself, and only what it says itself is heard: nobody can move
others. Members only are heard at all.

Nothing is durable. Bounded are the peers, what each says, and the bytes of probes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final, get_args

import msgspec

from shoal.core.events import (
    MessageReceived,
    PathMeasured,
    PeerLost,
    Send,
    Tell,
)
from shoal.core.machine import Mount
from shoal.core.proximity.bandwidth import MeasuredLinks
from shoal.core.proximity.coordinates import SURE, Coordinates, distance_us
from shoal.core.proximity.events import SitesChanged, TransferMeasured
from shoal.core.proximity.network_map import NetworkMap
from shoal.core.proximity.probing import Probes
from shoal.protocol.proximity.messages import (
    Position,
    ProbePiece,
    ProbeWanted,
    ToProximity,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from shoal.core.events import Effect, Event
    from shoal.model.ids import NodeId

TRIPS_MIN: Final = 2
"""Round trips after which a peer counts: the first is that of a link being made."""

ROUNDS: Final = 4
MOVED_BY_MAX: Final = 64
"""How often a node that is not sure yet moves by each of its peers, and by how many."""

FORGET_QUICKEST: Final = 1.02
"""By which the quickest round trip is forgotten with every other: ways change."""

MOVED_US: Final = 500
MOVED_SHARE: Final = 0.05
"""A move that is worth telling: so far, or this share of the way to the peer."""

SURER_MILLI: Final = 100
TELL_S: Final = 2.0
TELL_SETTLED_S: Final = 10.0
SETTLED_MILLI: Final = 300
"""How often a peer is told at most, until this node knows where it is, and then."""

SITES_S: Final = 2.0
SITES_S_PER_PEER: Final = 0.02
"""How often sites are found anew at most: the more nodes, the more there is to do."""

PEERS_MAX: Final = 1_024


class _Peer(msgspec.Struct, gc=False):
    """What is known of one linked peer, besides what it told."""

    trips: int = 0
    said: Position | None = None  # our position, as it was told
    said_at: float = 0.0


def never_busy() -> bool:
    """Say that the network of this node is free."""
    return False


@final
class Proximity:
    """Decides where this node is, whom it tells, and which nodes form a site."""

    mount = Mount(
        takes=dict.fromkeys(get_args(ToProximity)),
        hears=(PathMeasured, TransferMeasured),
    )

    def __init__(
        self,
        node: NodeId,
        rng: Random,
        *,
        is_busy: Callable[[], bool] = never_busy,
        probes: bool = True,
    ) -> None:
        """Know nobody; `is_busy` says whether tasks need the network of this node."""
        self.map = NetworkMap(node)
        self.links = MeasuredLinks()
        self._coordinates = Coordinates(rng)
        self._peers: dict[NodeId, _Peer] = {}
        self._probes = Probes()
        self._may_probe = probes
        self._is_busy = is_busy
        self._changed = False  # since sites were found
        self._sites_at = 0.0
        self._told_sites = SitesChanged({})
        self._takers: dict[type, Callable[[Any, float], list[Effect]]] = {
            PathMeasured: self._on_measured,
            TransferMeasured: self._on_transfer,
            MessageReceived: self._on_message,
            PeerLost: self._on_lost,
        }

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take in one fact; return what to do about it. Raising is a bug."""
        take = self._takers.get(type(event))
        return [] if take is None else take(event, now)

    def next_deadline(self) -> float | None:
        """When to deliver `DeadlineReached`: never, round trips are often enough."""
        return None

    # What the host tells.

    def _on_measured(self, event: PathMeasured, now: float) -> list[Effect]:
        known, peer = self._peers.get(event.peer), event.peer
        if known is None:
            if len(self._peers) >= PEERS_MAX:
                return []
            known = self._peers[peer] = _Peer()
        known.trips += 1
        rtt_us = 1e6 * event.rtt_s
        before_us = self.map.rtts_us.get(peer, rtt_us)
        rtt_us = self.map.rtts_us[peer] = min(rtt_us, before_us * FORGET_QUICKEST)
        if known.trips < TRIPS_MIN:
            return []
        self._move(peer)
        position = self.map.own = self._position()
        told = self._tell(position, now)
        return [*told, *self._probe(now), *self._find_sites(now)]

    def _move(self, peer: NodeId) -> None:
        """Move by the round trip to a peer, and by all of them until we are sure."""
        found, told, rtts_us = self._coordinates, self.map.told, self.map.rtts_us
        if found.error < SURE:
            if peer in told:
                found.measured(peer, told[peer], rtts_us[peer])
            return
        for _ in range(ROUNDS):
            for each, position in list(told.items())[:MOVED_BY_MAX]:
                if each in rtts_us:
                    found.measured(each, position, rtts_us[each])

    def _tell(self, position: Position, now: float) -> list[Effect]:
        """Tell peers where this node is, if that is news to them."""
        effects: list[Effect] = []
        for peer, known in self._peers.items():
            if known.trips < TRIPS_MIN:
                continue
            if self._is_news(known, position, self.map.rtts_us[peer], now):
                known.said, known.said_at, self._changed = position, now, True
                effects.append(Send(peer, position))
        return effects

    def _probe(self, now: float) -> list[Effect]:
        """Ask one peer for a probe, if it is time for any."""
        if not self._may_probe or not self._probes.may_begin(now) or self._is_busy():
            return []
        for peer, known in self._peers.items():
            if known.said is not None:
                wanted = self._probes.begin(peer, self.links.count(peer), now)
                if wanted is not None:
                    return [Send(peer, wanted)]
        return []

    def _on_transfer(self, event: TransferMeasured, _: float) -> list[Effect]:
        if event.peer in self._peers:
            self.links.note(event.peer, event.size, event.took_s)
            self._changed = True
        return []

    def _on_lost(self, event: PeerLost, _: float) -> list[Effect]:
        peer = event.peer
        self._peers.pop(peer, None)
        self.map.rtts_us.pop(peer, None)
        self._coordinates.forget(peer)
        self.links.forget(peer)
        self._probes.forget(peer)
        if self.map.told.pop(peer, None) is not None:
            self._changed = True
        return []

    # What peers say.

    def _on_message(self, event: MessageReceived, now: float) -> list[Effect]:
        peer, message = event.peer, event.message
        match message:
            case Position() if self._has_room(peer):
                self.map.told[peer] = message
                self._changed = True
            case ProbeWanted() if self._may_probe and not self._is_busy():
                pieces = self._probes.answer(peer, message, now)
                return [Send(peer, piece) for piece in pieces]
            case ProbePiece():
                return self._on_piece(peer, message, now)
            case _:
                pass
        return []

    def _on_piece(self, peer: NodeId, piece: ProbePiece, now: float) -> list[Effect]:
        rtt_s = self.map.rtts_us.get(peer, 0.0) / 1e6
        found = self._probes.on_piece(peer, piece, rtt_s, now)
        if isinstance(found, ProbeWanted):
            return [Send(peer, found)]
        if found is not None:
            self.links.note(peer, *found)
            self._changed = True
        return []

    # What follows.

    def _has_room(self, peer: NodeId) -> bool:
        return peer in self.map.told or len(self.map.told) < PEERS_MAX

    def _position(self) -> Position:
        found = self._coordinates.position
        links = self.links
        if links.uplink:
            found = msgspec.structs.replace(
                found, uplink=links.uplink, narrow=links.narrow
            )
        return found

    def _is_news(
        self, known: _Peer, position: Position, rtt_us: float, now: float
    ) -> bool:
        """Whether a peer should be told where we are."""
        said = known.said
        if said is None:
            return True
        is_settled = position.error_milli < SETTLED_MILLI
        if now - known.said_at < (TELL_SETTLED_S if is_settled else TELL_S):
            return False
        moved_us = distance_us(said, position) - said.height_us - position.height_us
        moved_us += abs(said.height_us - position.height_us)
        return (
            moved_us > max(MOVED_US, MOVED_SHARE * rtt_us)
            or abs(said.error_milli - position.error_milli) > SURER_MILLI
            or (said.uplink, said.narrow) != (position.uplink, position.narrow)
        )

    def _find_sites(self, now: float) -> list[Effect]:
        if not self._changed or now < self._sites_at:
            return []
        self._changed = False
        self._sites_at = now + max(SITES_S, SITES_S_PER_PEER * len(self._peers))
        sites = self.map.find_sites()
        found = SitesChanged(sites, self.map.narrow())
        if found == self._told_sites:
            return []
        self._told_sites = found
        return [Tell(found)]
