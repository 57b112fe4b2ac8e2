"""What the network between nodes costs, in words."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from shoal.core.proximity.bandwidth import bits_s_of
from shoal.model.ids import NodeId
from shoal.net.identity.petname import petname
from shoal.policy.table.domains import LOCAL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.api import shoal_pb2 as pb
    from shoal.runtime.node import Node

SIZE: Final = 100_000_000
"""Bytes of the step and of the staging that are told of: a model of 25 M weights."""

HERE: Final = "here"


def add_place(node: Node, view: pb.Node, peer: NodeId) -> None:
    """Add to a view in which site a node is, and what the link to it carries."""
    view.site = site_of(node, peer, dict(view.labels))
    path = node.proximity.map.between(node.id, peer)
    if path is not None and path.bandwidth:
        view.bandwidth_bits_s = bits_s_of(path.bandwidth)


def site_of(node: Node, peer: NodeId, labels: dict[str, str]) -> str:
    """Return the site of a node: what its owner declared, else what was measured."""
    declared = [labels[name] for name in ("site", "pod", "leaf") if name in labels]
    if declared:
        return "/".join(declared)
    site = node.proximity.map.sites.get(peer, HERE if peer == node.id else "")
    if site == LOCAL:
        return HERE
    _, is_near, leader = site.partition("near ")
    return f"near {petname(NodeId(leader))}" if is_near else site


def network_words(node: Node, workers: Sequence[NodeId]) -> list[str]:
    """Say what is between the nodes of a gang, and what talking there takes."""
    nodes = list(dict.fromkeys(workers))
    words = _shared(len(workers), len(nodes))
    if len(nodes) < 2:
        return words
    where = f"its {len(nodes)} nodes are {_where(node, nodes)}"
    found = node.proximity.map.worst(nodes)
    if found is None:
        return [*words, f"{where}; the network between them is not measured yet"]
    words.append(where)
    path, (one, other) = found
    ends = f"{petname(one)} and {petname(other)}"
    words.append(f"between {ends}, the farthest apart: {path}")
    if path.bandwidth:
        step_s = path.all_reduce_s(SIZE, len(nodes))
        words.append(f"a step that adds up 100 MB takes {_time(step_s)} there")
        words += _staging(node, nodes)
    else:
        words.append("what their links carry is not measured yet")
    return words


def _shared(tasks: int, nodes: int) -> list[str]:
    """Say that tasks of a gang share nodes, and how each would have one of its own."""
    if tasks == nodes:
        return []
    on = "1 node" if nodes == 1 else f"{nodes} nodes"
    return [f"its {tasks} tasks share {on}: --distinct-nodes gives each its own"]


def _staging(node: Node, nodes: Sequence[NodeId]) -> list[str]:
    """Say how long the slowest of them takes to fetch code or data from here."""
    paths = [node.proximity.map.between(node.id, each) for each in nodes]
    known = [path.transfer_s(SIZE) for path in paths if path and path.bandwidth]
    return [f"staging 100 MB from here takes {_time(max(known))}"] if known else []


def _where(node: Node, nodes: Sequence[NodeId]) -> str:
    labels: dict[NodeId, dict[str, str]] = {}
    if node.scheduler is not None:
        table = node.scheduler.views.table
        views = {each: table.view(each) for each in nodes}
        labels = {n: dict(v.capacity.labels) for n, v in views.items() if v is not None}
    sites = Counter(site_of(node, each, labels.get(each, {})) for each in nodes)
    if len(sites) == 1:
        [site] = sites
        return f"in one site ({site})" if site else "not placed in any site yet"
    parts = ", ".join(f"{site or 'elsewhere'} {count}" for site, count in sites.items())
    return f"in {len(sites)} sites ({parts})"


def _time(duration_s: float) -> str:
    if duration_s < 1:
        return f"about {duration_s * 1e3:.0f} ms"
    return f"about {duration_s:.{0 if duration_s >= 100 else 1}f} s"
