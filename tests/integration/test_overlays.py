"""Load gossip of live nodes follows the overlay that their users chose."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.live_shoal import LiveNode, LiveShoal, eventually, live_shoal

pytestmark = pytest.mark.integration

PATIENCE_S = 90.0


@pytest.fixture
def shoal(tmp_path: Path) -> Iterator[LiveShoal]:
    ways = ("--without", "p2p", "--overlay", "mst")
    with live_shoal(LiveShoal(tmp_path, 4, more_args=ways)) as running:
        yield running


def metric(node: LiveNode, name: str) -> int:
    with node.client() as client:
        lines = client.metrics().splitlines()
    return sum(int(float(line.split()[-1])) for line in lines if line.startswith(name))


def neighbours(nodes: list[LiveNode]) -> list[int]:
    return [metric(node, "shoal_gossip_neighbours{") for node in nodes]


def hear_of(teller: LiveNode, others: list[LiveNode], *, undo: bool) -> None:
    """Let one worker have news, and wait until all others have heard it."""
    before = {node.id: metric(node, "shoal_load_news_total") for node in others}
    with teller.client() as client:
        client.drain(undo=undo)
    for node in others:
        eventually(
            lambda node=node: metric(node, "shoal_load_news_total") > before[node.id],  # type: ignore[misc]
            PATIENCE_S,
            node.story,
        )


def test_news_of_load_goes_along_a_tree_that_heals_when_a_node_dies(
    shoal: LiveShoal,
) -> None:
    nodes = shoal.nodes
    tree = 2 * (len(nodes) - 1)  # Each edge is chosen at both of its ends.
    eventually(lambda: sum(neighbours(nodes)) == tree, PATIENCE_S)
    hear_of(shoal.workers[0], [shoal.boss, *shoal.workers[1:]], undo=False)

    told = neighbours(shoal.workers[1:])
    lost = shoal.workers[1 + told.index(max(told))]
    lost.kill()
    left = [node for node in nodes if node is not lost]
    eventually(lambda: sum(neighbours(left)) == tree - 2, PATIENCE_S)
    hear_of(shoal.workers[0], left[:1] + left[2:], undo=True)
