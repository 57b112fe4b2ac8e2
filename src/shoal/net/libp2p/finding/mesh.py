"""Keep a node connected to its gates and to enough neighbours.

Everything that connects to peers of its own accord is here, in one loop that looks
after the node once a second or so and does a little each time.
"""

from __future__ import annotations

import hashlib
import heapq
import random
from time import monotonic
from typing import TYPE_CHECKING, Final, final

import trio

from shoal import failpoints
from shoal.model.backoff import Backoff
from shoal.net.libp2p.finding import address_book
from shoal.net.libp2p.finding.gossip_guard import Latest
from shoal.net.libp2p.thread.notices import Estimated, Met, Relayed
from shoal.net.libp2p.thread.trio_calls import start
from shoal.protocol.limits import ADDRESSES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from shoal.model.ids import NodeId
    from shoal.net.libp2p.streams.links import StreamLinks
    from shoal.net.libp2p.thread.host_adapter import Libp2pHost
    from shoal.net.libp2p.thread.shared_state import SharedState

WATCH_S: Final = 1.0
NEIGHBOURS_WANTED: Final = 6
CONNECTS_PER_TURN: Final = 3
GATES_WANTED: Final = 2
EMPTY_S: Final = 15.0
"""With neighbours but no mesh for so long, connections are made anew."""

PROBE_TURNS: Final = 30  # in which every peer is asked once whether it lives
PROBE_S: Final = 30.0
"""Few peers are not asked more often than many: an answer costs about two kilobytes."""

PROBES_PER_TURN_MAX: Final = 8
DOUBTS_MAX: Final = 2
REFRESH: Final = Backoff(3.0, 30.0)
"""Between searches of a node that knows few others, while these find nobody new."""

TRIM_S: Final = 60.0
NEWS: Final = 20  # An estimate that differs by less than a twentieth is none.
RESERVE_S: Final = 600.0
RESERVE_AGAIN_S: Final = 20.0
"""After a gate would not relay: it may have no room left."""

RECONNECT: Final = Backoff(1.0, 60.0)
PEERS_MAX: Final = 1_024


@final
class Mesh:
    """Looks after the connections of one host."""

    def __init__(
        self,
        shared: SharedState,
        host: Libp2pHost,
        links: StreamLinks,
        topic: str,
        nearby: Callable[[], Iterable[tuple[NodeId, tuple[str, ...]]]],
    ) -> None:
        """Keep the mesh of `topic`; `nearby` tells whom the local network shows."""
        self._shared = shared
        self._host = host
        self._links = links
        self._topic = topic
        self._nearby = nearby
        self._gates = _gates(shared)
        self._retries: Latest[NodeId, tuple[float, int]] = Latest(PEERS_MAX)
        self._meshed_at = monotonic()
        self._refreshed_at = 0.0
        self._fruitless = 0  # searches since the last that found somebody
        self._routed: set[NodeId] = set()
        self._probed_at = 0.0
        self._trimmed_at = monotonic()
        # Gates that relay to us: since when, and over which connection.
        self._reserved: dict[NodeId, tuple[float, object]] = {}
        self._declined: Latest[NodeId, float] = Latest(PEERS_MAX)  # when, by gate
        self._introduced: Latest[NodeId, tuple[str, ...]] = Latest(PEERS_MAX)
        self._told = 0
        self._unproved: list[NodeId] = []  # connected, and not yet asked this round
        self._doubts: Latest[NodeId, int] = Latest(PEERS_MAX)  # times without answer

    async def run(self) -> None:
        """Look after the node until cancelled."""
        while True:
            failpoints.reach("libp2p.turn")
            await self._meet_gates()
            await self._meet_others()
            await self._befriend()
            await self._mend()
            await self._probe()
            await self._refresh()
            await self._enrol()
            self._introduce()
            self._links.improve()
            if self._shared.settings.is_relayed:
                await self._reserve()
            await trio.sleep(WATCH_S * random.uniform(0.7, 1.3))

    def gate_addresses(self) -> list[str]:
        """Return an address of each gate that is connected, with its id."""
        found = [(gate, self._plain_address(gate)) for gate in self._relays()]
        return [f"{address}/p2p/{gate}" for gate, address in found if address]

    def _relays(self) -> list[NodeId]:
        """Return the connected peers that relay for others."""
        connected = self._host.connected()
        return [
            peer
            for peer in connected
            if (peer in self._gates or self._host.is_relay(peer))
            and not self._host.is_relayed(peer)
        ]

    def _plain_address(self, peer: NodeId) -> str | None:
        """Return where others may dial a peer, without its id."""
        known = (
            *self._gates.get(peer, ()),
            *self._shared.book.of(peer),
            *self._host.addresses_of(peer),
        )
        return next(
            (address_book.bare(a) for a in known if address_book.is_plain(a)), None
        )

    async def _meet_gates(self) -> None:
        connected = sum(self._host.is_connected(gate) for gate in self._gates)
        wanted = GATES_WANTED if self._host.neighbours() else len(self._gates)
        gates = random.sample(sorted(self._gates), len(self._gates))
        for gate in gates:
            if connected >= wanted:
                return
            connected += await self._meet(gate, self._gates[gate])

    async def _meet_others(self) -> None:
        """Connect to a few more peers, so that the shoal is no star around a gate."""
        for peer, addresses in self._nearby():
            self._shared.book.add(peer, addresses)
            await self._meet(peer, addresses)
        if len(self._host.connected()) >= NEIGHBOURS_WANTED:
            return
        for peer in list(self._shared.linked):
            if addresses := self._shared.book.of(peer):
                await self._meet(peer, addresses)
        if len(self._host.connected()) >= NEIGHBOURS_WANTED:
            return
        routed = self._host.routed()
        for peer in random.sample(routed, min(CONNECTS_PER_TURN, len(routed))):
            known = (*self._host.addresses_of(peer), *self._shared.book.of(peer))
            await self._meet(peer, known)

    async def _meet(self, peer: NodeId, addresses: tuple[str, ...]) -> bool:
        """Connect to a peer, unless that failed lately; return whether it is news."""
        if peer == self._shared.node or self._host.is_connected(peer):
            return False
        if self._links.is_refused(peer):
            return False
        due, failures = self._retries.get(peer) or (0.0, 0)
        if monotonic() < due:
            return False
        if not await self._host.connect(peer, addresses):
            pause_s = RECONNECT.pause_s(failures + 1)
            self._retries.put(peer, (monotonic() + pause_s, failures + 1))
            self._shared.counts["dial-failed"] += 1
            return False
        self._retries.pop(peer)
        await self._host.join(peer)
        return True

    async def _befriend(self) -> None:
        friends = set(self._host.neighbours())
        strange = [peer for peer in self._host.connected() if peer not in friends]
        async with trio.open_nursery() as nursery:
            for peer in strange[:CONNECTS_PER_TURN]:
                if self._shared.guard.is_banned(peer, monotonic()):
                    start(nursery, self._host.disconnect, peer)
                else:
                    start(nursery, self._host.befriend, peer)

    async def _mend(self) -> None:
        """Reconnect if gossip has no peers although there are neighbours."""
        now = monotonic()
        neighbours = self._host.neighbours()
        if self._host.mesh(self._topic) or not neighbours:
            self._meshed_at = now
        elif now - self._meshed_at > EMPTY_S:
            self._meshed_at = now
            self._shared.counts["mesh-mended"] += 1
            await self._host.disconnect(random.choice(neighbours))

    async def _probe(self) -> None:
        """See whether some peers still answer; in time, all of them are asked."""
        peers = sorted(self._host.connected())
        self._unproved = [peer for peer in self._unproved if peer in peers]
        if not self._unproved and monotonic() - self._probed_at > PROBE_S:
            self._probed_at, self._unproved = monotonic(), peers
        count = min(PROBES_PER_TURN_MAX, 1 + len(peers) // PROBE_TURNS)
        async with trio.open_nursery() as nursery:
            asked, self._unproved = self._unproved[:count], self._unproved[count:]
            for peer in asked:
                start(nursery, self._prove, peer)

    async def _prove(self, peer: NodeId) -> None:
        if await self._host.is_alive(peer):
            self._doubts.pop(peer)
            return
        doubts = 1 + (self._doubts.pop(peer) or 0)
        if doubts < DOUBTS_MAX:
            self._doubts.put(peer, doubts)
            self._unproved.append(peer)  # It is asked again soon.
            return
        self._shared.counts["peer-silent"] += 1
        await self._host.disconnect(peer)

    async def _refresh(self) -> None:
        """Look for the nodes around us in the DHT, and keep its records few."""
        now = monotonic()
        if now - self._trimmed_at > TRIM_S:
            self._trimmed_at = now
            self._shared.counts["records-trimmed"] += self._host.trim()
        routed = set(self._host.routed())
        if routed - self._routed and len(routed) < NEIGHBOURS_WANTED:
            self._fruitless = 0
        self._routed = routed
        pause_s = REFRESH.pause_s(self._fruitless)
        if now - self._refreshed_at < pause_s or not self._host.connected():
            return
        self._refreshed_at = now
        self._fruitless += 1
        await self._host.closest_to(self._shared.node)

    async def _enrol(self) -> None:
        """Take connected peers into the DHT, and judge by it how many there are."""
        routed = set(self._host.routed())
        fresh = [peer for peer in self._host.connected() if peer not in routed]
        for peer in fresh[:CONNECTS_PER_TURN]:
            await self._host.join(peer)
        nodes = estimated_size(self._shared.node, self._host.routed())
        if abs(nodes - self._told) * NEWS > self._told:
            self._told = nodes
            self._shared.nodes = nodes
            self._shared.notices.put(Estimated(nodes))

    def _introduce(self) -> None:
        """Tell the node where connected peers take direct links, once for each place.

        They said so themselves when they connected, or on the local network.
        """
        for peer in self._host.connected():
            if peer in self._shared.linked or self._links.is_refused(peer):
                continue
            known = (*self._host.addresses_of(peer), *self._shared.book.of(peer))
            direct = address_book.direct_ones(sorted(known))[:ADDRESSES_MAX]
            if direct and direct != self._introduced.get(peer):
                self._introduced.put(peer, direct)
                self._shared.notices.put(Met(peer, direct))

    async def _reserve(self) -> None:
        """Have gates relay to us, and tell others the addresses that follow."""
        now = monotonic()
        relays = self._relays()
        gone = [
            gate
            for gate, (_, connection) in self._reserved.items()
            if gate not in relays or self._host.connection(gate) is not connection
        ]
        for gate in gone:
            del self._reserved[gate]
        if gone:
            # Trap: a circuit whose gate is gone stays, and nobody is told.
            self._links.doubt_relayed()
        for gate in relays:
            if len(self._reserved) >= GATES_WANTED and gate not in self._reserved:
                continue
            if self._may_reserve(gate, now):
                if await self._links.as_member(gate, self._host.reserve, gate):
                    self._reserved[gate] = (now, self._host.connection(gate))
                else:
                    self._declined.put(gate, now)
                    self._shared.counts["reserve-failed"] += 1
        self._show_circuits()

    def _may_reserve(self, gate: NodeId, now: float) -> bool:
        reserved = self._reserved.get(gate)
        if reserved is not None and now - reserved[0] < RESERVE_S:
            return False
        declined = self._declined.get(gate)
        return declined is None or now - declined >= RESERVE_AGAIN_S

    def _show_circuits(self) -> None:
        node = self._shared.node
        places = [(gate, self._plain_address(gate)) for gate in self._reserved]
        circuits = tuple(
            address_book.circuit(f"{place}/p2p/{gate}", node)
            for gate, place in places
            if place
        )
        if circuits != self._shared.circuits:
            self._shared.circuits = circuits
            self._shared.notices.put(Relayed(circuits))


def _gates(shared: SharedState) -> dict[NodeId, tuple[str, ...]]:
    gates: dict[NodeId, tuple[str, ...]] = {}
    for address in shared.settings.gates:
        gate = address_book.peer_of(address)
        if gate is not None and gate != shared.node:
            gates[gate] = (*gates.get(gate, ()), address)
    return gates


NEAREST: Final = 20
_SPACE: Final = 1 << 256


def estimated_size(node: NodeId, others: Iterable[NodeId]) -> int:
    """Estimate the number of nodes from the density of `others` around `node`.

    Ids are spread evenly, so if the twentieth nearest of all nodes is at one hundredth
    of the greatest distance, there are about two thousand. A node knows those nearest
    to it well, because Kademlia makes it look for them.
    """
    own = _place(node)
    distances = {own ^ _place(other) for other in others if other != node}
    if len(distances) < NEAREST:
        return len(distances) + 1  # In a small shoal everybody knows everybody.
    farthest = heapq.nsmallest(NEAREST, distances)[-1]
    dense = round((NEAREST - 1) * _SPACE / farthest) + 1
    return max(dense, len(distances) + 1)


def _place(node: NodeId) -> int:
    return int.from_bytes(hashlib.sha256(node.encode()).digest(), "big")
