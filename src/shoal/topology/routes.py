"""Shortest paths over a fabric: costs, equal-cost next hops, the path of a flow.

Most hosts have one cable. Such a *stub* needs no search of its own: its paths are its
cable and then the paths of its switch. So distances are searched only
between the other nodes, the *core*, from each destination when it is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import numpy as np
import rustworkx as rx
from numpy.typing import NDArray

from shoal.topology.fabric import Fabric

if TYPE_CHECKING:
    from collections.abc import Callable

Cost = int
"""Nanoseconds, or hops."""

Hop = tuple[int, int]
"""The next node, and the link that leads there."""

FAR: Final = np.iinfo(np.int64).max // 4
"""The distance of what no path leads to; two of these still fit together."""

_MASK: Final = (1 << 64) - 1


def by_latency(fabric: Fabric, link: int) -> Cost:
    """Charge a link for its latency; none is free, or paths could go in circles."""
    return max(1, fabric.links[link].latency_ns)


@final
class Routes:
    """Paths by one cost, over the parts of the fabric that work now."""

    def __init__(
        self, fabric: Fabric, cost: Callable[[Fabric, int], Cost] = by_latency
    ) -> None:
        self.fabric = fabric
        self._costs = [cost(fabric, link) for link in range(len(fabric.links))]
        self._version = -1
        self._refresh()

    def _refresh(self) -> None:
        """Forget what failures have changed."""
        fabric = self.fabric
        self._version = fabric.version
        around = [list(fabric.neighbours(node)) for node in range(len(fabric.nodes))]
        # Where each node hangs: itself, at no cost, unless it is a stub.
        self._anchor = list(range(len(around)))
        self._drop: list[Cost] = [0] * len(around)
        self._cable: list[int] = [-1] * len(around)
        for node, hops in enumerate(around):
            if len(hops) == 1 and len(around[hops[0][0]]) > 1:
                self._anchor[node], self._cable[node] = hops[0]
                self._drop[node] = self._costs[hops[0][1]]
        self._around = [
            sorted(hop for hop in hops if self._cable[hop[0]] < 0)
            if self._cable[node] < 0
            else []
            for node, hops in enumerate(around)
        ]
        self._graph: rx.PyGraph[int, float] = rx.PyGraph()
        self._graph.add_nodes_from(list(range(len(around))))
        self._graph.add_edges_from(
            [
                (node, far, float(self._costs[link]))
                for node, hops in enumerate(self._around)
                for far, link in hops
                if node < far
            ]
        )
        # The same in arrays, for questions about many at once.
        self._anchors: NDArray[np.int64] = np.asarray(self._anchor)
        self._drops: NDArray[np.int64] = np.asarray(self._drop)
        self._arrays: dict[int, NDArray[np.int64]] = {}
        self._to: dict[int, list[Cost]] = {}
        self._hops: dict[tuple[int, int], tuple[Hop, ...]] = {}

    def distance(self, a: int, b: int) -> Cost | None:
        """Return the cost of the cheapest path; None if there is no path."""
        if self._version != self.fabric.version:
            self._refresh()
        if a == b:
            return 0 if self.fabric.works(a) else None
        anchors, drop = self._anchor, self._drop
        between = self._distances(anchors[b])[anchors[a]]
        return None if between >= FAR else drop[a] + between + drop[b]

    def distances(self, a: int, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the cost of the paths to many nodes at once; `FAR` if there is none.

        What the node itself costs is not defined.
        """
        if self._version != self.fabric.version:
            self._refresh()
        anchor = self._anchor[a]
        between = self._arrays.get(anchor)
        if between is None:
            between = self._arrays[anchor] = np.asarray(self._distances(anchor))
        total = between[self._anchors[nodes]] + self._drops[nodes] + self._drop[a]
        nearer: NDArray[np.int64] = np.minimum(total, FAR)
        return nearer

    def anchor(self, node: int) -> int:
        """Return the switch that a node hangs from; itself if it has several cables."""
        if self._version != self.fabric.version:
            self._refresh()
        return self._anchor[node]

    def graph(self) -> rx.PyGraph[int, float]:
        """Return the working part of the fabric as a graph with costs."""
        fabric = self.fabric
        graph: rx.PyGraph[int, float] = rx.PyGraph()
        graph.add_nodes_from(list(range(len(fabric.nodes))))
        graph.add_edges_from(
            [
                (*fabric.ends[link], float(cost))
                for link, cost in enumerate(self._costs)
                if fabric.carries(link)
            ]
        )
        return graph

    def next_hops(self, at: int, to: int) -> tuple[Hop, ...]:
        """Return every next hop of a cheapest path, by the number of its node."""
        if self._version != self.fabric.version:
            self._refresh()
        if at == to:
            return ()
        if self._cable[at] >= 0:
            reached = self.distance(at, to) is not None
            return ((self._anchor[at], self._cable[at]),) if reached else ()
        anchor = self._anchor[to]
        if anchor == at:
            return ((to, self._cable[to]),)
        found = self._hops.get((at, anchor))
        if found is None:
            found = self._hops[at, anchor] = self._search_hops(at, anchor)
        return found

    def path(self, a: int, b: int, flow: int) -> list[int] | None:
        """Return the links that a flow takes, each as 2 * link + (1 if backwards).

        Of equal next hops every switch chooses by a hash of the flow, as real ones
        do, so that a flow keeps its path and many flows use all of them.
        """
        links: list[int] = []
        at = a
        while at != b:
            hops = self.next_hops(at, b)
            if not hops:
                return None
            choice = _mixed(flow, at) % len(hops) if len(hops) > 1 else 0
            far, link = hops[choice]
            links.append(2 * link + (self.fabric.ends[link][0] != at))
            at = far
        return links

    def path_count(self, a: int, b: int) -> int:
        """Return how many cheapest paths there are; 1 from a node to itself."""
        counts: dict[int, int] = {b: 1}

        def count(at: int) -> int:
            if at not in counts:
                counts[at] = sum(count(far) for far, _ in self.next_hops(at, b))
            return counts[at]

        return count(a)

    def _search_hops(self, at: int, to: int) -> tuple[Hop, ...]:
        left = self._distances(to)
        if left[at] >= FAR:
            return ()
        return tuple(
            (far, link)
            for far, link in self._around[at]
            if self._costs[link] + left[far] == left[at]
        )

    def _distances(self, to: int) -> list[Cost]:
        """Return the distance of every core node to one of them."""
        found = self._to.get(to)
        if found is None:
            lengths = rx.dijkstra_shortest_path_lengths(self._graph, to, float)
            found = [FAR] * len(self.fabric.nodes)
            for node, length in lengths.items():
                found[node] = int(length)
            if self.fabric.works(to):
                found[to] = 0
            self._to[to] = found
        return found


def _mixed(flow: int, node: int) -> int:
    """Return 64 bits that depend on all bits of both (the finish of splitmix64)."""
    x = (flow * 0x9E3779B97F4A7C15 + node * 0xD1B54A32D192ED03 + 1) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)
