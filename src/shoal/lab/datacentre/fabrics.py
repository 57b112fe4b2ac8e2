"""Build the fabric that a scenario, or a file, describes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, cast

import rustworkx as rx

from shoal.errors import SpecError, UsageError
from shoal.lab.datacentre.scenario import (
    CableSpec,
    FabricSpec,
    FatTreeSpec,
    GraphSpec,
    LeafSpineSpec,
    WanSpec,
)
from shoal.topology.fabric import Fabric, FabricLink, FabricNode
from shoal.topology.shapes import (
    HOST_CABLE,
    UPLINK_CABLE,
    WAN_CABLE,
    Cable,
    SiteShape,
    fat_tree,
    leaf_spine,
    oversubscribed,
    wan,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    CableOf = Callable[[str, CableSpec, int, int], tuple[int, int]]

GRAPH_BYTES_MAX: Final = 64 << 20


def build_fabric(spec: FabricSpec, folder: Path, *, cable_of: CableOf) -> Fabric:
    """Return the fabric of a scenario; files are looked for in `folder`."""

    def cable(name: str, given: CableSpec, default: Cable) -> Cable:
        path = f"$.fabric.{name}"
        return Cable(*cable_of(path, given, *_numbers(default)))

    host = cable("host_link", spec.host_link, HOST_CABLE)
    is_wan = isinstance(spec, WanSpec)
    uplink = cable("uplink", spec.uplink, WAN_CABLE if is_wan else UPLINK_CABLE)
    try:
        match spec:
            case LeafSpineSpec():
                if spec.oversubscription is not None:
                    uplink = oversubscribed(
                        spec.oversubscription,
                        spec.spines,
                        spec.hosts,
                        host_cable=host,
                        uplink=uplink,
                    )
                return leaf_spine(
                    spec.spines,
                    spec.leaves,
                    spec.hosts,
                    host_cable=host,
                    uplink=uplink,
                )
            case FatTreeSpec():
                return fat_tree(spec.k, host_cable=host, uplink=uplink)
            case WanSpec():
                sites = [SiteShape(s.name, s.hosts, s.x_km, s.y_km) for s in spec.sites]
                return wan(sites, host_cable=host, trunk=uplink)
            case GraphSpec():
                return read_graph(folder / spec.file, host, cable_of)
    except SpecError:
        raise
    except UsageError as error:
        raise SpecError(
            error.what, path="$.fabric", because=error.because, hint=error.hint
        ) from None


def read_graph(path: Path, default: Cable, cable_of: CableOf) -> Fabric:
    """Read any graph: GraphML by its ending, else JSON of the node-link form.

    Nodes carry `kind` (host or switch; without it, ends of one cable are hosts), and
    edges `latency` and `bandwidth`, as text with units.
    """
    if not path.is_file():
        raise _unreadable(path, "there is no such file", "check the name")
    if path.stat().st_size > GRAPH_BYTES_MAX:
        raise _unreadable(path, "it has more than 64 MB", "take a smaller graph")
    if path.suffix.lower() in (".graphml", ".xml"):
        nodes, edges = _from_graphml(path)
    else:
        nodes, edges = _from_json(path)
    degree: dict[str, int] = {}
    for a, b, _ in edges:
        degree[a] = degree.get(a, 0) + 1
        degree[b] = degree.get(b, 0) + 1
    made = [_node(path, name, data, degree.get(name, 0)) for name, data in nodes]
    links = [_link(path, a, b, data, default, cable_of) for a, b, data in edges]
    return Fabric(path.stem, made, links)


def _node(path: Path, name: str, data: Mapping[str, Any], degree: int) -> FabricNode:
    kind: Any = data.get("kind") or ("host" if degree <= 1 else "switch")
    if kind not in ("host", "switch"):
        raise _unreadable(
            path, f"node {name} is of kind '{kind}'", "allowed: host, switch"
        )
    tier = data.get("tier", 0 if kind == "host" else 1)
    return FabricNode(name, kind, int(tier))


def _link(
    path: Path,
    a: str,
    b: str,
    data: Mapping[str, Any],
    default: Cable,
    cable_of: CableOf,
) -> FabricLink:
    named = {key: data.get(key) for key in ("latency", "bandwidth")}
    given = CableSpec(**{k: str(v) for k, v in named.items() if v is not None})
    where = f"{path.name}, link {a}-{b}"
    latency_ns, bandwidth_bps = cable_of(where, given, *_numbers(default))
    return FabricLink(a, b, latency_ns, bandwidth_bps)


Nodes = list[tuple[str, dict[str, Any]]]
Edges = list[tuple[str, str, dict[str, Any]]]


def _from_graphml(path: Path) -> tuple[Nodes, Edges]:
    try:
        graphs = rx.read_graphml(str(path))
    except Exception as error:  # noqa: BLE001 - the reader raises what it likes
        raise _unreadable(path, str(error), "check that it is GraphML") from None
    if not graphs:
        raise _unreadable(path, "it holds no graph", "put one <graph> in it")
    graph = cast("rx.PyGraph[dict[str, Any], dict[str, Any]]", graphs[0])
    names = [str(data["id"]) for data in graph.nodes()]
    nodes = [(name, data) for name, data in zip(names, graph.nodes(), strict=True)]
    edges = [
        (names[a], names[b], data or {}) for a, b, data in graph.weighted_edge_list()
    ]
    return nodes, edges


def _from_json(path: Path) -> tuple[Nodes, Edges]:
    try:
        document: Any = json.loads(path.read_bytes())
    except ValueError as error:
        raise _unreadable(path, str(error), "check that it is JSON") from None
    if not isinstance(document, dict):
        raise _unreadable(path, "it is no object", "write nodes and links")
    document = cast("dict[str, Any]", document)
    nodes = [
        (_field(path, f"nodes[{n}]", node, "id"), dict(node))
        for n, node in enumerate(_list(path, document, "nodes"))
    ]
    key = "links" if "links" in document else "edges"
    edges = [
        (
            _field(path, f"{key}[{n}]", edge, "source"),
            _field(path, f"{key}[{n}]", edge, "target"),
            dict(edge),
        )
        for n, edge in enumerate(_list(path, document, key))
    ]
    return nodes, edges


def _list(path: Path, document: dict[str, Any], key: str) -> list[Any]:
    value: Any = document.get(key)
    if not isinstance(value, list):
        form = "{nodes: [{id}], links: [{source, target}]}"
        raise _unreadable(path, f"{key} is no list", f"write {form}")
    return list(cast("Iterable[Any]", value))


def _field(path: Path, where: str, data: object, key: str) -> str:
    if not isinstance(data, dict) or key not in data:
        raise _unreadable(path, f"{where} has no {key}", f"give it the field {key}")
    return str(cast("dict[str, Any]", data)[key])


def _numbers(cable: Cable) -> tuple[int, int]:
    return cable.latency_ns, cable.bandwidth_bps


def _unreadable(path: Path, because: str, hint: str) -> SpecError:
    return SpecError(
        f"graph file {path.name} cannot be used",
        path="$.fabric.file",
        because=because,
        hint=hint,
    )
