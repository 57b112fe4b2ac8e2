"""A shoal that was split and healed agrees again, and has lost and doubled nothing."""

import tempfile
from pathlib import Path

import pytest
from tests.integration.islands import islands
from tests.integration.live_shoal import LiveShoal, live_shoal, promised
from tests.integration.partitions import split_and_heal

pytestmark = pytest.mark.integration

AGREED_S = 10.0


def test_three_and_three_nodes_agree_soon_after_a_split(tmp_path: Path) -> None:
    def agreed() -> float:
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        with islands(left=3, right=3) as net:
            shoal = LiveShoal(
                folder, 5, place=net.place, worker_roles=("scheduler", "worker")
            )
            with live_shoal(shoal):
                return split_and_heal(shoal, net, left=3).whole_s

    promised(agreed, AGREED_S, tries=3)
