"""Gossip overlays on a fabric: who tells whom.

Each function returns the neighbours of every host, by number. All of them are
symmetric, and join all hosts that a path joins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import rustworkx as rx

if TYPE_CHECKING:
    from shoal.topology.routes import Routes

Neighbours = dict[int, tuple[int, ...]]
Edge = tuple[int, int]


def flood(routes: Routes) -> Neighbours:
    """Join hosts of one switch, and the hosts of the same place under all switches.

    News reaches every host in two steps, and many hosts many times.
    """
    under: dict[int, list[int]] = {}
    for host in routes.fabric.hosts:
        under.setdefault(routes.anchor(host), []).append(host)
    edges: dict[Edge, None] = {}
    longest = max(map(len, under.values()))
    for hosts in under.values():
        edges.update({(a, b): None for a in hosts for b in hosts if a < b})
    for place in range(longest):
        # A switch with fewer hosts lets one of them stand in for the missing place.
        row = sorted({hosts[place % len(hosts)] for hosts in under.values()})
        edges.update({(a, b): None for a in row for b in row if a < b})
    return _neighbours(routes, edges)


def spanning_tree(routes: Routes) -> Neighbours:
    """Join all hosts at the least cost, so that news takes each link once.

    This is a minimum spanning tree of all pairs of hosts by the cost of their paths.
    Pairs are not listed: each node of the fabric belongs to the host that is nearest,
    and some minimal tree needs no edges but those between such regions (Mehlhorn).
    """
    edges = _tree(routes)
    return _neighbours(routes, dict.fromkeys(edges))


def nearest(routes: Routes, count: int) -> Neighbours:
    """Join each host to its nearest neighbours, and all by a spanning tree.

    Without the tree, hosts of one switch would know only each other.
    """
    hosts = np.asarray(routes.fabric.hosts)
    many = len(hosts)
    edges = _tree(routes)
    found = dict.fromkeys(edges)
    count = min(count, many - 1)
    for place, host in enumerate(routes.fabric.hosts):
        if count < 1:
            break
        costs = routes.distances(host, hosts)
        # Of equally near hosts take the next ones, so that all are chosen alike.
        turn = (np.arange(many) - place) % many
        keys = np.minimum(costs, np.iinfo(np.int64).max // (2 * many)) * many + turn
        keys[place] = np.iinfo(np.int64).max
        best = np.argpartition(keys, count - 1)[:count]
        for other in hosts[best[np.argsort(keys[best])]].tolist():
            found[min(host, other), max(host, other)] = None
    return _neighbours(routes, found)


def _tree(routes: Routes) -> list[Edge]:
    """Return the edges of the spanning tree."""
    fabric, graph = routes.fabric, routes.graph()
    source = graph.add_node(-1)
    graph.add_edges_from([(source, h, 0.0) for h in fabric.hosts if fabric.works(h)])
    lengths = rx.dijkstra_shortest_path_lengths(graph, source, float)
    ways = rx.dijkstra_shortest_paths(graph, source, weight_fn=float)
    region = {node: way[1] for node, way in ways.items() if node != source}
    cheapest: dict[Edge, int] = {}
    for a, b, cost in graph.weighted_edge_list():
        if source in (a, b) or a not in region or region[a] == region[b]:
            continue
        pair = (min(region[a], region[b]), max(region[a], region[b]))
        total = int(lengths[a]) + int(cost) + int(lengths[b])
        cheapest[pair] = min(total, cheapest.get(pair, total))
    candidates: rx.PyGraph[int, float] = rx.PyGraph()
    candidates.add_nodes_from(list(range(len(fabric.nodes))))
    candidates.add_edges_from([(a, b, float(c)) for (a, b), c in cheapest.items()])
    chosen = rx.minimum_spanning_edges(candidates, float)
    return sorted((min(a, b), max(a, b)) for a, b, _ in chosen)


def _neighbours(routes: Routes, edges: dict[Edge, None]) -> Neighbours:
    found: dict[int, list[int]] = {host: [] for host in routes.fabric.hosts}
    for a, b in edges:
        found[a].append(b)
        found[b].append(a)
    return {host: tuple(sorted(others)) for host, others in found.items()}
