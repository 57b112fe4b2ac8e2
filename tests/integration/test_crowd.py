"""Nodes that start at once are known with what they have, and with each change."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.live_shoal import LiveNode, LiveShoal, eventually, live_shoal

pytestmark = pytest.mark.integration

CROWD = 7
PATIENCE_S = 90.0


@pytest.fixture
def shoal(tmp_path: Path) -> Iterator[LiveShoal]:
    with live_shoal(LiveShoal(tmp_path, CROWD)) as running:
        yield running


def what(node: LiveNode, of: str) -> tuple[int, int, int, bool]:
    """Return what a node knows of the room of another one, or of itself."""
    view = node.views()[of]
    free = view.free
    return free.cpu_milli, free.memory_bytes >> 30, free.gpu_milli, view.draining


def test_a_crowd_is_known_with_its_resources_and_updates(shoal: LiveShoal) -> None:
    def is_known() -> bool:
        told = [what(shoal.boss, worker.id) for worker in shoal.workers]
        return told == [what(worker, worker.id) for worker in shoal.workers]

    eventually(is_known, PATIENCE_S, shoal.boss.story)
    for worker in shoal.workers:
        with worker.client() as client:
            client.drain()

    eventually(is_known, PATIENCE_S, shoal.boss.story)
    assert all(what(shoal.boss, worker.id)[-1] for worker in shoal.workers)
