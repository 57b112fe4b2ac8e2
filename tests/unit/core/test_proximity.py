"""Nodes learn where they are, what their links carry, and who is near whom."""

from __future__ import annotations

from itertools import permutations
from random import Random

import pytest

from shoal.core.events import (
    Effect,
    Event,
    MessageReceived,
    PathMeasured,
    PeerLost,
    Send,
    Tell,
)
from shoal.core.proximity.bandwidth import bandwidth_text, bits_s_of, class_of
from shoal.core.proximity.coordinates import Coordinates, distance_us
from shoal.core.proximity.events import SitesChanged, TransferMeasured
from shoal.core.proximity.probing import BUDGET_BYTES, PEER_BYTES
from shoal.core.proximity.proximity import Proximity
from shoal.model.ids import NodeId
from shoal.policy.table.domains import LOCAL
from shoal.protocol.limits import PROBE_BYTES_MAX
from shoal.protocol.messages import AnyMessage
from shoal.protocol.proximity.messages import Position, ProbePiece, ProbeWanted

FAR_US = 40_000
NEAR_US = 600
MBIT = 1_000_000


class Pool:
    """Nodes of two sites that measure each other, in rounds of a second."""

    def __init__(self, count: int = 8, *, far_us: int = FAR_US, seed: int = 1) -> None:
        self.rng = Random(seed)
        self.names = [NodeId(f"n{index}") for index in range(count)]
        self.nodes = {name: Proximity(name, Random(name)) for name in self.names}
        self.far_us = far_us
        self.far_mbit = 1_000
        self.liars: dict[NodeId, Position] = {}
        self.now = 100.0

    def site(self, name: NodeId) -> int:
        """Return the site in which a node really is."""
        return int(name[1:]) % 2

    def run(self, rounds: int) -> None:
        """Let all pairs measure their round trips so many times."""
        for _ in range(rounds):
            self.now += 1.0
            for one, other in permutations(self.names, 2):
                self.now += 1e-3
                rtt_s = self.rtt_us(one, other) * self.rng.uniform(1.0, 1.3) / 1e6
                self.feed(one, PathMeasured(other, rtt_s))

    def rtt_us(self, one: NodeId, other: NodeId) -> int:
        """Return how far two nodes really are apart."""
        return NEAR_US if self.site(one) == self.site(other) else self.far_us

    def feed(self, name: NodeId, event: PathMeasured | MessageReceived) -> None:
        """Tell a node a fact, and others what it says."""
        for effect in self.nodes[name].handle(event, self.now):
            if isinstance(effect, Send):
                self.carry(name, effect.peer, effect.message)

    def carry(self, one: NodeId, other: NodeId, message: AnyMessage) -> None:
        """Deliver a message, as late as its size makes it."""
        if isinstance(message, Position) and one in self.liars:
            message = self.liars[one]
        before = self.now
        self.now += self.rtt_us(one, other) / 2e6
        if isinstance(message, ProbePiece):
            same = self.site(one) == self.site(other)
            mbit = 1_000 if same else self.far_mbit
            self.now += 8 * len(message.data) / MBIT / mbit
        self.feed(other, MessageReceived(one, message))
        if not isinstance(message, ProbePiece):
            self.now = before

    def sites(self, name: NodeId) -> set[frozenset[str]]:
        """Return the sites that a node sees."""
        found: dict[str, list[str]] = {}
        for node, site in self.nodes[name].map.sites.items():
            found.setdefault(site, []).append(node)
        return {frozenset(nodes) for nodes in found.values()}

    def real_sites(self) -> set[frozenset[str]]:
        """Return the sites as they are, of those who do not lie."""
        honest = [name for name in self.names if name not in self.liars]
        parts = [[n for n in honest if self.site(n) == at] for at in (0, 1)]
        return {frozenset(part) for part in parts}


def test_two_sites_are_found_by_round_trips_alone() -> None:
    pool = Pool()

    pool.run(40)

    assert all(pool.sites(name) == pool.real_sites() for name in pool.names)
    path = pool.nodes[NodeId("n0")].map.between(NodeId("n2"), NodeId("n3"))
    assert path is not None
    assert path.rtt_us == pytest.approx(FAR_US, rel=0.25)
    assert pool.nodes[NodeId("n0")].map.sites[NodeId("n0")] == LOCAL


def moved_us(lie_us: int) -> float:
    """Return how far one liar moves a node that agrees with four others."""
    place = Coordinates(Random(1))
    honest = [Position(x_us=x, error_milli=100) for x in (-9_000, -3_000, 3_000, 9_000)]
    for _ in range(2):
        for name, told in zip("abcd", honest, strict=True):
            place.measured(NodeId(name), told, abs(told.x_us))
    before = place.position
    place.measured(NodeId("e"), Position(y_us=lie_us, error_milli=0), NEAR_US)
    return distance_us(before, place.position) - 2 * before.height_us


def test_the_further_a_peer_is_from_agreeing_the_less_it_moves_a_node() -> None:
    assert 0 < moved_us(200_000) < moved_us(20_000) / 5


def test_two_sites_are_found_by_a_narrow_link_alone() -> None:
    pool = Pool(far_us=NEAR_US)
    pool.far_mbit = 20

    pool.run(60)

    assert all(pool.sites(name) == pool.real_sites() for name in pool.names)
    path = pool.nodes[NodeId("n0")].map.between(NodeId("n2"), NodeId("n3"))
    assert path is not None
    assert bits_s_of(path.bandwidth) <= 20 * MBIT
    assert path.transfer_s(100 * MBIT) > 40


def test_nodes_of_one_site_stay_together() -> None:
    pool = Pool(far_us=NEAR_US)

    pool.run(60)

    assert all(pool.sites(name) == {frozenset(pool.names)} for name in pool.names)


@pytest.mark.parametrize("at_us", [(0, 0), (90_000, -90_000), (20_000, 0)])
def test_a_liar_moves_nobody_but_itself(at_us: tuple[int, int]) -> None:
    pool = Pool(count=9)
    x_us, y_us = at_us
    narrow = tuple((name, 1) for name in pool.names[1:])
    lie = Position(x_us=x_us, y_us=y_us, error_milli=0, uplink=20, narrow=narrow)
    pool.liars[NodeId("n0")] = lie

    pool.run(60)

    for name in pool.names[1:]:
        seen = {site - {"n0"} for site in pool.sites(name)} - {frozenset()}
        assert seen == pool.real_sites(), name


def test_who_is_not_where_it_says_it_is_has_no_site() -> None:
    pool = Pool()
    pool.run(40)
    near = pool.nodes[NodeId("n2")].map.own
    assert near is not None
    pool.liars[NodeId("n1")] = near  # It is far, and says that it is here.

    pool.feed(NodeId("n0"), MessageReceived(NodeId("n1"), near))
    pool.run(5)

    assert NodeId("n1") not in pool.nodes[NodeId("n0")].map.sites


def test_at_rest_nothing_is_said() -> None:
    pool = Pool()
    pool.run(90)
    said: list[tuple[NodeId, NodeId, AnyMessage]] = []
    pool.carry = lambda *what: said.append(what)  # type: ignore[method-assign]

    pool.run(30)

    assert len(said) <= 8 * 7, "each peer is told about once at most"
    assert not any(isinstance(what, ProbeWanted) for _, _, what in said)


def test_probes_stay_within_the_budget_of_a_node_and_the_share_of_a_peer() -> None:
    node = Proximity(NodeId("n"), Random(1))

    def answered(peer: str, now: float) -> int:
        wanted = ProbeWanted(probe=1, size=PROBE_BYTES_MAX)
        effects = node.handle(MessageReceived(NodeId(peer), wanted), now)
        pieces = [e.message for e in effects if isinstance(e, Send)]
        return sum(len(p.data) for p in pieces if isinstance(p, ProbePiece))

    assert 0 < sum(answered("greedy", 10.0) for _ in range(1_000)) <= PEER_BYTES
    others = sum(answered(f"p{n}", 10.0) for n in range(1_000))
    assert 0 < others <= BUDGET_BYTES
    assert answered("late", 20.0) == 0
    assert answered("later", 600.0) == PROBE_BYTES_MAX


def test_nothing_is_probed_while_tasks_need_the_network_or_if_it_is_off() -> None:
    busy = Proximity(NodeId("n"), Random(1), is_busy=lambda: True)
    off = Proximity(NodeId("n"), Random(1), probes=False)
    wanted = MessageReceived(NodeId("p"), ProbeWanted(probe=1, size=1))

    for node in (busy, off):
        said = [
            effect
            for second in range(30)
            for effect in node.handle(PathMeasured(NodeId("p"), 0.001), 1.0 + second)
        ]
        sent = [e.message for e in said if isinstance(e, Send)]
        assert sent
        assert not any(isinstance(message, ProbeWanted) for message in sent)
        assert node.handle(wanted, 50.0) == []


def test_transfers_count_and_a_lost_peer_is_forgotten() -> None:
    node, peer = Proximity(NodeId("n"), Random(1), probes=False), NodeId("p")
    for second in range(4):
        node.handle(PathMeasured(peer, 0.001), 1.0 + second)
    node.handle(TransferMeasured(peer, 1 << 20, 0.084), 6.0)

    assert node.links.get(peer) == class_of(100 * MBIT)
    assert bandwidth_text(class_of(100 * MBIT)) == "64 Mbit/s"
    node.handle(PeerLost(peer), 7.0)
    assert node.links.uplink == 0
    assert node.map.between(NodeId("n"), peer) is None


def test_the_scheduler_hears_of_sites_once_they_change() -> None:
    pool = Pool()
    told: list[SitesChanged] = []
    one = pool.nodes[NodeId("n0")]
    handle = one.handle

    def overheard(event: Event, now: float) -> list[Effect]:
        effects = handle(event, now)
        for effect in effects:
            if isinstance(effect, Tell):
                assert isinstance(effect.event, SitesChanged)
                told.append(effect.event)
        return effects

    one.handle = overheard  # type: ignore[method-assign]
    pool.run(60)

    assert told
    assert told[-1].sites == one.map.sites


@pytest.mark.parametrize(
    ("far_us", "far_mbit", "narrow"), [(NEAR_US, 50, 16), (FAR_US, 1_000, 4)]
)
def test_it_is_told_how_narrow_the_way_out_of_a_site_is(
    far_us: int, far_mbit: int, narrow: int
) -> None:
    pool = Pool(far_us=far_us)
    pool.far_mbit = far_mbit
    pool.run(40)
    for one, other in permutations(pool.names, 2):
        mbit = 1_000 if pool.site(one) == pool.site(other) else far_mbit
        came = TransferMeasured(other, 10 << 20, 8 * (10 << 20) / MBIT / mbit)
        pool.nodes[one].handle(came, pool.now)
    pool.run(40)
    map_ = pool.nodes[NodeId("n0")].map

    assert pool.sites(NodeId("n0")) == pool.real_sites()
    found = map_.narrow()
    assert set(found) == set(map_.sites.values())
    assert all(narrow / 2 <= each <= 2 * narrow for each in found.values()), found
