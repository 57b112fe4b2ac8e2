from statistics import median

import pytest
from tests.unit.net.shoals import identity

from shoal.model.ids import NodeId
from shoal.net.libp2p.finding.mesh import NEAREST, estimated_size

NODES = [NodeId(f"node-{number}") for number in range(2_000)]


def test_in_a_small_shoal_all_are_counted() -> None:
    node, *others = (identity(number).node for number in range(NEAREST))

    assert estimated_size(node, others) == NEAREST
    assert estimated_size(node, [*others, node]) == NEAREST
    assert estimated_size(node, []) == 1


@pytest.mark.parametrize("size", [200, 2_000])
def test_half_of_the_nodes_are_right_within_a_quarter(size: int) -> None:
    shoal = NODES[:size]

    sizes = [estimated_size(node, shoal) for node in shoal[:20]]

    assert abs(median(sizes) - size) < size / 4
