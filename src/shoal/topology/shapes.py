"""Fabrics from a few numbers: leaf-spine, fat-tree, and sites joined by a WAN.

Switches are named by what they are and counted from 0, such as `leaf3` and `spine1`.
Hosts are counted through: `host12` is the first under `leaf3` if each has four.
"""

from __future__ import annotations

from typing import Final

import msgspec

from shoal.errors import UsageError
from shoal.topology.fabric import NODES_MAX, Fabric, FabricLink, FabricNode

GBPS: Final = 1_000_000_000
KM_PER_MS: Final = 200  # light in glass


class Cable(msgspec.Struct, frozen=True):
    """What all links of one kind have in common."""

    latency_ns: int
    bandwidth_bps: int

    def joining(self, a: str, b: str) -> FabricLink:
        """Return such a link between two nodes."""
        return FabricLink(a, b, self.latency_ns, self.bandwidth_bps)


HOST_CABLE: Final = Cable(1_000, 100 * GBPS)
UPLINK_CABLE: Final = Cable(2_000, 100 * GBPS)
WAN_CABLE: Final = Cable(10_000_000, 10 * GBPS)


def leaf_spine(
    spines: int,
    leaves: int,
    hosts: int,
    *,
    host_cable: Cable = HOST_CABLE,
    uplink: Cable = UPLINK_CABLE,
) -> Fabric:
    """Join every leaf to every spine, and hosts to every leaf."""
    _require_size("leaf-spine", spines + leaves + leaves * hosts, spines, leaves, hosts)
    nodes = [FabricNode(f"spine{s}", "switch", 2) for s in range(spines)]
    nodes += [FabricNode(f"leaf{n}", "switch", 1) for n in range(leaves)]
    links = [
        uplink.joining(f"leaf{n}", f"spine{s}")
        for n in range(leaves)
        for s in range(spines)
    ]
    for number in range(leaves * hosts):
        nodes.append(FabricNode(f"host{number}"))
        links.append(host_cable.joining(f"host{number}", f"leaf{number // hosts}"))
    return Fabric(f"leaf-spine {spines}x{leaves}x{hosts}", nodes, links)


def oversubscribed(
    ratio: float, spines: int, hosts: int, *, host_cable: Cable, uplink: Cable
) -> Cable:
    """Return the uplink with which a leaf's hosts share `ratio` times less upwards."""
    upwards_bps = hosts * host_cable.bandwidth_bps / (ratio * spines)
    return Cable(uplink.latency_ns, max(1, round(upwards_bps)))


def fat_tree(
    k: int, *, host_cable: Cable = HOST_CABLE, uplink: Cable = UPLINK_CABLE
) -> Fabric:
    """Join k**3 / 4 hosts by switches of k ports each, in k pods.

    A pod has k/2 leaves and k/2 aggregation switches; (k/2)**2 cores join the pods.
    """
    if k % 2:
        raise UsageError(
            f"a fat-tree of switches with {k} ports cannot be built",
            because="half the ports lead up and half lead down, so k is even",
            hint=f"take k = {k + 1}",
        )
    half = k // 2
    _require_size("fat-tree", k**3 // 4 + k * k + half**2, k)
    nodes = [FabricNode(f"core{c}", "switch", 3) for c in range(half**2)]
    links: list[FabricLink] = []
    for pod in range(k):
        for a in range(half):
            name = f"agg{pod * half + a}"
            nodes.append(FabricNode(name, "switch", 2))
            cores = range(a * half, (a + 1) * half)
            links += [uplink.joining(name, f"core{c}") for c in cores]
        for n in range(half):
            leaf = f"leaf{pod * half + n}"
            nodes.append(FabricNode(leaf, "switch", 1))
            aggs = range(pod * half, (pod + 1) * half)
            links += [uplink.joining(leaf, f"agg{a}") for a in aggs]
    for number in range(k**3 // 4):
        nodes.append(FabricNode(f"host{number}"))
        links.append(host_cable.joining(f"host{number}", f"leaf{number // half}"))
    return Fabric(f"fat-tree k={k}", nodes, links)


class SiteShape(msgspec.Struct, frozen=True):
    """A place with hosts behind one switch; where it is, in km on a flat map."""

    name: str
    hosts: int
    x_km: float = 0.0
    y_km: float = 0.0


def wan(
    sites: list[SiteShape], *, host_cable: Cable = HOST_CABLE, trunk: Cable = WAN_CABLE
) -> Fabric:
    """Join every site to every other; light needs its time on the way.

    The latency of `trunk` is added to that of the distance.
    """
    hosts = sum(site.hosts for site in sites)
    _require_size("wan", hosts + len(sites), len(sites), hosts)
    nodes = [FabricNode(site.name, "switch", 1) for site in sites]
    links: list[FabricLink] = []
    for n, a in enumerate(sites):
        for b in sites[n + 1 :]:
            km = ((a.x_km - b.x_km) ** 2 + (a.y_km - b.y_km) ** 2) ** 0.5
            light_ns = round(km / KM_PER_MS * 1_000_000)
            cable = Cable(trunk.latency_ns + light_ns, trunk.bandwidth_bps)
            links.append(cable.joining(a.name, b.name))
    number = 0
    for site in sites:
        for _ in range(site.hosts):
            nodes.append(FabricNode(f"host{number}"))
            links.append(host_cable.joining(f"host{number}", site.name))
            number += 1
    return Fabric(f"wan of {len(sites)} sites", nodes, links)


def _require_size(kind: str, nodes: int, *parts: int) -> None:
    if min(parts) < 1:
        raise UsageError(
            f"a {kind} fabric of {nodes} nodes cannot be built",
            because="each of its numbers is 1 or more",
            hint="leave a number out to get its default",
        )
    if nodes > NODES_MAX:
        raise UsageError(
            f"a {kind} fabric of {nodes} nodes is too large",
            because=f"the most is {NODES_MAX}",
            hint="take fewer hosts under each switch",
        )
