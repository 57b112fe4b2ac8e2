"""Paths, overlays and fair shares, against networkx and a straightforward oracle."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, product

import networkx as nx  # type: ignore[import-untyped]
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.topology import overlays
from shoal.topology.fabric import Fabric, FabricLink, FabricNode
from shoal.topology.routes import FAR, Routes, by_latency
from shoal.topology.sharing import Sharing


def by_hops(_fabric: Fabric, _link: int) -> int:
    return 1


COSTS = {"latency": by_latency, "hops": by_hops}


@st.composite
def fabrics(draw: st.DrawFn) -> Fabric:
    """Any graph of some hosts and switches, whole or in parts, with double links."""
    kinds = draw(st.lists(st.booleans(), min_size=2, max_size=12))
    nodes = [
        FabricNode(f"n{i}", "switch" if s else "host") for i, s in enumerate(kinds)
    ]
    nodes[0] = FabricNode("n0", "host")
    pairs = list(combinations(range(len(nodes)), 2))
    chosen = draw(st.lists(st.sampled_from(pairs), max_size=24))
    links = [
        FabricLink(
            f"n{a}",
            f"n{b}",
            draw(st.integers(0, 5)),
            draw(st.sampled_from((8, 16, 800))),
        )
        for a, b in chosen
    ]
    return Fabric("drawn", nodes, links)


def as_networkx(fabric: Fabric, cost: str) -> nx.MultiGraph:
    graph = nx.MultiGraph()
    graph.add_nodes_from(i for i in range(len(fabric.nodes)) if fabric.works(i))
    for number, (a, b) in enumerate(fabric.ends):
        if fabric.carries(number):
            weight = COSTS[cost](fabric, number)
            graph.add_edge(a, b, key=number, weight=weight)
    return graph


def with_failures(data: st.DataObject, fabric: Fabric) -> None:
    names = [node.name for node in fabric.nodes] + [link.name for link in fabric.links]
    for name in data.draw(st.lists(st.sampled_from(names), max_size=2)):
        fabric.fail(name)


@settings(deadline=None)
@given(st.data(), fabrics(), st.sampled_from(sorted(COSTS)))
def test_distances_and_next_hops_are_those_of_networkx(
    data: st.DataObject, fabric: Fabric, cost: str
) -> None:
    routes = Routes(fabric, COSTS[cost])
    routes.distance(0, 1)  # What was searched before a failure must not stay.
    with_failures(data, fabric)
    graph = as_networkx(fabric, cost)
    lengths = dict(nx.all_pairs_dijkstra_path_length(graph))

    nodes = range(len(fabric.nodes))
    # All distances first: whatever else is asked would bring routes up to date.
    for a, b in product(nodes, nodes[::-1]):
        assert routes.distance(a, b) == lengths.get(a, {}).get(b)
    for a in nodes:
        for b in nodes:
            expected = lengths.get(a, {}).get(b)
            hops = routes.next_hops(a, b)
            if expected is None or a == b:
                assert hops == ()
                continue
            assert {link for _, link in hops} == {
                key
                for _, far, key, weight in graph.edges(a, keys=True, data="weight")
                if weight + lengths[far].get(b, FAR) == expected
            }


@settings(deadline=None)
@given(st.data(), fabrics(), st.integers(0, 2**64))
def test_a_flow_takes_a_cheapest_path(
    data: st.DataObject, fabric: Fabric, flow: int
) -> None:
    routes = Routes(fabric, by_hops)
    with_failures(data, fabric)

    for a in range(len(fabric.nodes)):
        for b in range(len(fabric.nodes)):
            path = routes.path(a, b, flow)
            cost = routes.distance(a, b)
            if cost is None:
                assert path is None or a == b
                continue
            assert path is not None
            assert len(path) == cost
            at = a
            for step in path:
                ends = fabric.ends[step // 2]
                assert ends[step % 2] == at
                at = ends[1 - step % 2]
            assert at == b


@settings(deadline=None)
@given(fabrics())
def test_paths_are_counted_as_networkx_lists_them(fabric: Fabric) -> None:
    routes = Routes(fabric, by_hops)
    graph = as_networkx(fabric, "hops")

    for a, b in combinations(range(len(fabric.nodes)), 2):
        if routes.distance(a, b) is None:
            continue
        listed = 0
        for nodes in nx.all_shortest_paths(nx.Graph(graph), a, b):
            ways = [graph.number_of_edges(u, v) for u, v in nx.utils.pairwise(nodes)]
            listed += int(np.prod(ways))
        assert routes.path_count(a, b) == listed


@settings(deadline=None)
@given(st.data(), fabrics())
def test_the_spanning_tree_is_minimal_over_all_pairs_of_hosts(
    data: st.DataObject, fabric: Fabric
) -> None:
    with_failures(data, fabric)
    routes = Routes(fabric)
    closure = nx.Graph()
    closure.add_nodes_from(host for host in fabric.hosts if fabric.works(host))
    for a, b in combinations(fabric.hosts, 2):
        cost = routes.distance(a, b)
        if cost is not None:
            closure.add_edge(a, b, weight=cost)

    tree = overlays.spanning_tree(routes)

    expected = nx.minimum_spanning_tree(closure)
    edges = {(a, b) for a, others in tree.items() for b in others if a < b}
    assert len(edges) == expected.number_of_edges()
    cost = sum(routes.distance(a, b) or 0 for a, b in edges)
    assert cost == expected.size(weight="weight")
    near = overlays.nearest(routes, 2)
    for others in (tree, near, overlays.flood(routes)):
        joined = nx.Graph()
        joined.add_nodes_from(others)
        joined.add_edges_from((a, b) for a, them in others.items() for b in them)
        for part in nx.connected_components(closure):
            assert nx.is_connected(joined.subgraph(part))
        assert all(a in others[b] for a, them in others.items() for b in them)
        assert all(a not in them for a, them in others.items())


# Fair shares.


class Wanted:
    """One flow of the oracle."""

    def __init__(self, links: list[int], most: Fraction | None) -> None:
        self.links = links
        self.most = most


def fair_shares(
    capacities: list[int], flows: dict[int, Wanted]
) -> dict[int, Fraction | None]:
    """Fill links step by step, in exact numbers. None: as fast as one likes."""
    rates: dict[int, Fraction | None] = {}
    left = [Fraction(c) for c in capacities]
    growing = dict(flows)
    for id_, flow in flows.items():
        if not flow.links:
            rates[id_] = flow.most
            del growing[id_]
    while growing:
        limits: list[Fraction] = []
        for link, room in enumerate(left):
            users = sum(f.links.count(link) for f in growing.values())
            if users:
                limits.append(room / users)
        limits += [f.most for f in growing.values() if f.most is not None]
        level = min(limits)
        full = {
            link
            for link, room in enumerate(left)
            if (users := sum(f.links.count(link) for f in growing.values()))
            and room / users == level
        }
        done = {
            id_: flow
            for id_, flow in growing.items()
            if flow.most == level or full.intersection(flow.links)
        }
        for id_, flow in done.items():
            rates[id_] = level
            for link in flow.links:
                left[link] -= level
            del growing[id_]
    return rates


@settings(deadline=None)
@given(st.data(), st.lists(st.integers(1, 1_000), min_size=1, max_size=8))
def test_rates_are_max_min_fair_however_flows_come_and_go(
    data: st.DataObject, capacities: list[int]
) -> None:
    sharing = Sharing(capacities)
    flows: dict[int, Wanted] = {}
    links = st.lists(st.integers(0, len(capacities) - 1), max_size=6)
    for step in range(data.draw(st.integers(1, 12))):
        ending: bool = data.draw(st.booleans())
        if flows and ending:
            gone = data.draw(st.sampled_from(sorted(flows)))
            del flows[gone]
            sharing.remove(gone)
        else:
            most = data.draw(st.none() | st.integers(1, 500).map(Fraction))
            flow = flows[step] = Wanted(data.draw(links), most)
            limit = float("inf") if most is None else float(most)
            sharing.add(step, flow.links, limit)
        if data.draw(st.booleans()):
            continue  # Several changes may be settled at once.
        sharing.settle()

        expected = fair_shares(capacities, flows)
        for id_, rate in expected.items():
            exact = float("inf") if rate is None else float(rate)
            assert np.isclose(sharing._flows[id_].rate, exact, rtol=1e-9)
        loads = np.zeros(len(capacities))
        for id_, flow in flows.items():
            for link in flow.links:
                loads[link] += sharing._flows[id_].rate
        assert np.allclose(sharing.loads, loads, rtol=1e-9)
        assert (loads <= np.asarray(capacities) * (1 + 1e-9)).all()
