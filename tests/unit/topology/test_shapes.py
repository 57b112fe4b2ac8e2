"""Fabrics from a few numbers, and what is refused."""

from __future__ import annotations

import pytest

from shoal.errors import UsageError
from shoal.topology import overlays
from shoal.topology.fabric import Fabric, FabricLink, FabricNode
from shoal.topology.routes import Routes
from shoal.topology.shapes import (
    GBPS,
    Cable,
    SiteShape,
    fat_tree,
    leaf_spine,
    oversubscribed,
    wan,
)


def test_a_leaf_spine_fabric_has_one_path_over_each_spine() -> None:
    fabric = leaf_spine(4, 8, 4)
    routes = Routes(fabric)
    near, far = fabric.index["host1"], fabric.index["host31"]

    assert len(fabric.hosts) == 32
    assert len(fabric.links) == 4 * 8 + 32
    assert routes.path_count(fabric.index["host0"], near) == 1
    assert routes.path_count(near, far) == 4
    assert routes.distance(near, far) == 2 * (1_000 + 2_000)
    taken = {tuple(routes.path(near, far, flow) or ()) for flow in range(64)}
    assert len(taken) == 4, "many flows use all equal paths"


def test_a_fat_tree_has_all_its_paths_between_pods() -> None:
    fabric = fat_tree(4)
    routes = Routes(fabric, lambda _fabric, _link: 1)
    a, b, far = (fabric.index[name] for name in ("host0", "host2", "host15"))

    assert len(fabric.hosts) == 16
    assert len(fabric.nodes) == 16 + 20
    assert routes.path_count(a, b) == 2, "the aggregation switches of one pod"
    assert routes.path_count(a, far) == 4, "one over each core"
    assert routes.distance(a, far) == 6


def test_sites_are_as_far_apart_as_light_needs() -> None:
    sites = [SiteShape("berlin", 2), SiteShape("tokyo", 1, x_km=8_900.0)]
    fabric = wan(sites, trunk=Cable(1_000_000, GBPS))
    routes = Routes(fabric)

    apart = routes.distance(fabric.index["host0"], fabric.index["host2"])

    assert apart == 2 * 1_000 + 1_000_000 + 44_500_000


def test_a_failed_spine_leaves_the_paths_over_the_others() -> None:
    fabric = leaf_spine(3, 2, 1)
    routes = Routes(fabric)
    a, b = fabric.index["host0"], fabric.index["host1"]

    fabric.fail("spine1")
    fabric.fail("leaf0-spine2")
    assert routes.path_count(a, b) == 1
    ((hop, _),) = routes.next_hops(fabric.index["leaf0"], b)
    assert hop == fabric.index["spine0"]
    fabric.fail("leaf1")
    assert routes.distance(a, b) is None
    fabric.mend("leaf1")
    fabric.mend("spine1")
    assert routes.path_count(a, b) == 2


def test_oversubscription_makes_uplinks_narrow() -> None:
    host, up = Cable(1_000, 100 * GBPS), Cable(2_000, GBPS)

    narrow = oversubscribed(4.0, spines=2, hosts=8, host_cable=host, uplink=up)

    assert narrow == Cable(2_000, 100 * GBPS)


def test_the_nearest_neighbours_are_under_the_same_leaf() -> None:
    fabric = leaf_spine(2, 4, 8)
    routes = Routes(fabric)

    near = overlays.nearest(routes, 3)

    tree = overlays.spanning_tree(routes)
    for host, others in near.items():
        local = [o for o in others if routes.anchor(o) == routes.anchor(host)]
        assert len(local) >= 3
        assert set(others) - set(local) <= set(tree[host])


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: fat_tree(3), "k is even"),
        (lambda: leaf_spine(0, 1, 1), "1 or more"),
        (lambda: leaf_spine(1, 1_000, 1_000), "the most is"),
        (lambda: Fabric("f", [FabricNode("s", "switch")], []), "has no hosts"),
        (
            lambda: Fabric("f", [FabricNode("a"), FabricNode("a")], []),
            "two nodes named a",
        ),
        (
            lambda: Fabric("f", [FabricNode("a")], [FabricLink("a", "x", 1, 1)]),
            "no node",
        ),
        (
            lambda: Fabric("f", [FabricNode("a")], [FabricLink("a", "a", 1, 1)]),
            "back to where",
        ),
        (
            lambda: Fabric(
                "f", [FabricNode("a"), FabricNode("b")], [FabricLink("a", "b", 1, 0)]
            ),
            "carries nothing",
        ),
        (lambda: leaf_spine(1, 1, 1).fail("leaf7"), "no node or link 'leaf7'"),
    ],
)
def test_what_makes_no_fabric_is_refused_with_the_reason(
    build: object, words: str
) -> None:
    assert callable(build)
    with pytest.raises(UsageError) as caught:
        build()

    assert words in str(caught.value)
    assert caught.value.hint
