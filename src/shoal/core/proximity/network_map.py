"""A map of the network: which nodes are near each other, and what is between them.

A site is a set of nodes that are within `NEAR_US` of one of them, by their coordinates,
and whose links to it are not much narrower than what both get elsewhere. The node with
most others near it comes first, so nobody can part the others by where it says it is:
it can only join them or stay away.

What a node says of itself is checked against the round trip that was measured to it
from here. Who is not where it says it is, or is not sure yet, has no site.
"""

from __future__ import annotations

import math
from itertools import combinations
from typing import TYPE_CHECKING, Final, TypeAlias, final

import msgspec
import numpy as np

from shoal.core.proximity.bandwidth import bandwidth_text, bits_s_of
from shoal.core.proximity.coordinates import distance_us
from shoal.policy.table.domains import LOCAL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy.typing as npt

    from shoal.model.ids import NodeId
    from shoal.protocol.proximity.messages import Position

    Bools = npt.NDArray[np.bool_]

NEAR_US: Final = 5_000
"""Round trips within one site are quicker: a building, a campus, a town."""

STAY: Final = 1.5
"""Who was near once stays so until it is so many times as far away."""

NARROWER: Final = 2
"""Links narrower by this many classes, four times, part two sites."""

WORST_OF_MAX: Final = 64
"""Nodes of which all pairs are looked at."""

TALK_BYTES: Final = 1 << 20
"""What tasks of a gang say to each other at once, to compare links by."""

COMPARED_OF_SITE: Final = 4
"""Nodes of a site whose links are compared with others'."""

ERROR_MAX_MILLI: Final = 600
"""Who is less sure than this where it is has no site yet."""


Paths: TypeAlias = "Callable[[NodeId, NodeId], Path | None]"
"""What is between two nodes, if anybody knows."""


def unknown(_one: NodeId, _other: NodeId) -> None:
    """Say that nobody knows."""


class Path(msgspec.Struct, frozen=True):
    """What is between two nodes: a round trip, and a bandwidth class, or 0."""

    rtt_us: int
    bandwidth: int = 0

    def transfer_s(self, size: int) -> float:
        """Estimate how long so many bytes take from one node to the other."""
        wire_s = 8 * size / bits_s_of(self.bandwidth) if self.bandwidth else 0.0
        return self.rtt_us / 1e6 + wire_s

    def is_much_nearer(self, than: Path) -> bool:
        """Whether bytes come this way much sooner, as within a site and from another.

        Where bandwidth is not known of both, the round trip alone tells.
        """
        times = 1 << NARROWER
        if self.bandwidth and than.bandwidth:
            return times * self.transfer_s(TALK_BYTES) <= than.transfer_s(TALK_BYTES)
        return max(NEAR_US, times * self.rtt_us) <= than.rtt_us

    def all_reduce_s(self, size: int, nodes: int) -> float:
        """Estimate how long a ring of nodes takes to add up so many bytes of each."""
        turns = 2 * (nodes - 1)
        return turns * self.transfer_s(-(-size // nodes))

    def __str__(self) -> str:
        rtt = f"{self.rtt_us / 1e3:.1f} ms"
        return f"{rtt}, {bandwidth_text(self.bandwidth)}" if self.bandwidth else rtt


@final
class NetworkMap:
    """Positions of all linked nodes and this one, and the sites they form."""

    def __init__(self, node: NodeId) -> None:
        self.node = node
        self.own: Position | None = None
        self.told: dict[NodeId, Position] = {}
        self.rtts_us: dict[NodeId, float] = {}  # measured from here
        self.sites: dict[NodeId, str] = {}

    def between(self, one: NodeId, other: NodeId) -> Path | None:
        """Return what is between two nodes, measured or estimated, if it is known."""
        if one == other:
            return Path(0)
        rtt_us = self._measured_us(one, other)
        a, b = self._position(one), self._position(other)
        if a is None or b is None:
            return None if rtt_us is None else Path(round(rtt_us))
        if rtt_us is None:
            rtt_us = distance_us(a, b)
        return Path(round(rtt_us), _bandwidth(one, a, other, b))

    def worst(
        self, nodes: Sequence[NodeId]
    ) -> tuple[Path, tuple[NodeId, NodeId]] | None:
        """Return the longest round trip and the narrowest link between any two.

        With it comes the pair that has the narrowest, or else the longest. None if
        nothing is known of some pair.
        """
        worst, pair = Path(0), None
        for one, other in combinations(nodes[:WORST_OF_MAX], 2):
            path = self.between(one, other)
            if path is None:
                return None
            if _is_worse(path, worst):
                pair = (one, other)
            known = [each for each in (path.bandwidth, worst.bandwidth) if each]
            rtt_us = max(path.rtt_us, worst.rtt_us)
            worst = Path(rtt_us, min(known, default=0))
        return None if pair is None else (worst, pair)

    def find_sites(self) -> dict[NodeId, str]:
        """Part all nodes into sites anew; return the site of each that has one."""
        placed = self._placed()
        nodes = list(placed)
        near = self._near(placed)
        left = np.ones(len(nodes), bool)
        sites: dict[NodeId, str] = {}
        while left.any():
            counts = near[:, left].sum(axis=1)
            counts[~left] = -1
            leader = int(counts.argmax())
            members = np.flatnonzero(near[leader] & left).tolist()
            left[members] = False
            names = [nodes[index] for index in members]
            site = LOCAL if self.node in names else f"near {nodes[leader]}"
            sites.update(dict.fromkeys(names, site))
        self.sites = sites
        return sites

    def narrow(self) -> dict[str, float]:
        """Return how much longer it takes to talk to others than within each site.

        It compares the quickest link that leaves a site with the quickest within: less
        may be measured of a link than it carries, and never more. What was not measured
        is not there. It is a power of two: nobody needs to know better.
        """
        within: dict[str, float] = {}
        leaving: dict[str, float] = {}
        for one, other in combinations(self._some_of_each(), 2):
            path = self.between(one, other)
            if path is None or not path.bandwidth:
                continue
            took_s = path.transfer_s(TALK_BYTES)
            a, b = self.sites[one], self.sites[other]
            for site in dict.fromkeys((a, b)):
                of = within if a == b else leaving
                of[site] = min(took_s, of.get(site, took_s))
        return {
            site: 2.0 ** max(0, round(math.log2(leaving[site] / within[site])))
            for site in sorted(within)
            if site in leaving
        }

    def _some_of_each(self) -> list[NodeId]:
        """Return some nodes of each site, of as many sites as can be looked at."""
        chosen: dict[str, list[NodeId]] = {}
        for node, site in sorted(self.sites.items()):
            chosen.setdefault(site, []).append(node)
        some = [node for nodes in chosen.values() for node in nodes[:COMPARED_OF_SITE]]
        return some[:WORST_OF_MAX]

    def _near(self, placed: Mapping[NodeId, Position]) -> Bools:
        """Return which pairs may share a site; everybody is near itself."""
        nodes = list(placed)
        points = np.array([(p.x_us, p.y_us, p.z_us) for p in placed.values()], float)
        points = points.reshape(len(nodes), 3)
        heights = np.array([p.height_us for p in placed.values()], float)
        apart = np.linalg.norm(points[:, None] - points[None], axis=2)
        apart += heights[:, None] + heights[None]
        most = np.full(apart.shape, float(NEAR_US))
        known = [self.sites.get(node, "") for node in nodes]
        for site in dict.fromkeys(known):
            inside = np.flatnonzero([each == site and site != "" for each in known])
            most[np.ix_(inside, inside)] *= STAY
        near: Bools = apart <= most
        index = {node: nth for nth, node in enumerate(nodes)}
        for one, position in placed.items():
            for other, bandwidth in position.narrow:
                there = placed.get(other)
                if there is None:
                    continue
                best = min(position.uplink, there.uplink or position.uplink)
                if bandwidth <= best - NARROWER:
                    a, b = index[one], index[other]
                    near[a, b] = near[b, a] = False
        np.fill_diagonal(near, val=True)
        return near

    def _placed(self) -> dict[NodeId, Position]:
        """Return the nodes whose position can be believed, in order."""
        if self.own is None or self.own.error_milli > ERROR_MAX_MILLI:
            return {}
        found = {self.node: self.own}
        for node, position in self.told.items():
            rtt_us = self.rtts_us.get(node)
            if rtt_us is None or position.error_milli > ERROR_MAX_MILLI:
                continue
            off_us = abs(distance_us(self.own, position) - rtt_us)
            if off_us <= max(NEAR_US, rtt_us / 2):
                found[node] = position
        return dict(sorted(found.items()))

    def _position(self, node: NodeId) -> Position | None:
        return self.own if node == self.node else self.told.get(node)

    def _measured_us(self, one: NodeId, other: NodeId) -> float | None:
        if one == self.node:
            return self.rtts_us.get(other)
        return self.rtts_us.get(one) if other == self.node else None


def _is_worse(path: Path, than: Path) -> bool:
    """Whether one path is narrower than another, or longer if both are as wide."""
    if path.bandwidth and path.bandwidth != than.bandwidth:
        return not than.bandwidth or path.bandwidth < than.bandwidth
    return path.rtt_us > than.rtt_us


def _bandwidth(one: NodeId, a: Position, other: NodeId, b: Position) -> int:
    """Return the class of a link: what either end says of it, else its best."""
    there = dict(a.narrow).get(other, a.uplink)
    back = dict(b.narrow).get(one, b.uplink)
    return min(there, back) if there and back else there or back
