"""What a training claims to send is what leaves the interfaces of its nodes."""

import json
import statistics
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.found_shoal import FOUND_S, finished, shoal
from tests.integration.live_shoal import LiveNode, eventually
from tests.integration.namespaces import internet, missing
from tests.integration.test_train_nat import said, submit
from tests.integration.train_shoal import with_arrays

from shoal.api import shoal_pb2 as pb

pytestmark = pytest.mark.integration

NODES = 3
LONG_S = 600.0
SPEC = """
recipe: diloco
nodes: 2
workdir: %s
params: {program: train.py, size: 200000, rounds: 8, inner_steps: 8, fragments: 4,
  compress: float32, gather: 120, checkpoint_every: 4}
resources: {cpu: 1.5}
"""
SHARED = """
recipe: diloco
nodes: 3
workdir: %s
params: {program: train.py, size: 200000, rounds: 12, inner_steps: 1,
  compress: float32, validate_every: 12, gather: 120, checkpoint_every: 100}
resources: {cpu: 1.5}
"""


class Wired:
    """Nodes on links of 20 Mbit/s, and the counters of their interfaces."""

    def __init__(
        self, nodes: list[LiveNode], spaces: list[tuple[str, ...]], folder: Path
    ) -> None:
        self.nodes = nodes
        self._spaces = spaces
        self._folder = with_arrays(folder)

    def left_so_far(self) -> list[int]:
        """Return the bytes that left each machine, as its interface counts them."""
        read = ("cat", "/sys/class/net/wan/statistics/tx_bytes")
        return [
            int(subprocess.run([*space, *read], capture_output=True, check=True).stdout)
            for space in self._spaces
        ]

    def run(self, spec: str) -> tuple[list[dict[str, Any]], list[int]]:
        """Run a job to its end; return its lines, and what left each machine."""
        before = self.left_so_far()
        job = submit(self.nodes[0], spec % self._folder)
        done = finished(self.nodes[0], job, LONG_S)
        after = self.left_so_far()
        text = said(self.nodes[0], job)
        assert done.state == pb.STATE_DONE, text
        lines = [json.loads(line) for line in text.splitlines() if line[:1] == "{"]
        return lines, [late - early for early, late in zip(before, after, strict=True)]


@pytest.fixture(scope="module")
def wired(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wired]:
    """Lend nodes in namespaces of their own; skip where these cannot be made."""
    if why := missing():
        pytest.skip(why)
    folder: Path = tmp_path_factory.mktemp("wired")
    with internet() as net, shoal(folder) as reef:
        spaces: list[tuple[str, ...]] = []
        nodes: list[LiveNode] = []
        for number in range(NODES):
            address, prefix = net.machine(f"node{number}", 10 + number, rate="20mbit")
            spaces.append(prefix)
            start = reef.join if nodes else reef.found
            nodes.append(start(f"node{number}", address, prefix=prefix))
        first = nodes[0]
        eventually(lambda: len(first.views()) == NODES, FOUND_S, first.story)
        yield Wired(nodes, spaces, folder / "job")


def test_the_interfaces_carry_what_a_run_claims_to_send(wired: Wired) -> None:
    lines, sent = wired.run(SPEC)

    [claimed] = [line for line in lines if line["event"] == "sent"]
    kinds = claimed["bytes_sent_by_kind"]
    assert kinds["contributions"] > 3 << 20
    assert kinds["checkpoints"] > 1 << 18  # How much is under way at the end varies.
    assert claimed["bytes_sent_total"] == sum(kinds.values())
    assert 0.9 < sum(sent) / claimed["bytes_sent_total"] < 1.3


def test_without_a_centre_no_node_sends_much_more_than_another(wired: Wired) -> None:
    lines, sent = wired.run(SHARED)

    [claimed] = [line for line in lines if line["event"] == "sent"]
    rounds = [line for line in lines if line["event"] == "round"]
    assert [line["round"] for line in rounds] == list(range(1, 13))
    delta = rounds[-1]["by_worker"]["train.0"]["bytes_sent"]
    kinds = claimed["bytes_sent_by_kind"]
    # Each of three keeps a third of its delta, and of the outcome. Who is late for a
    # round, on a busy machine, sends nothing in it.
    sendings = sum(len(line["by_worker"]) for line in rounds)
    assert kinds["contributions"] == pytest.approx(sendings * delta * 2 / 3, rel=0.01)
    assert kinds["updates"] == pytest.approx(2 * 12 * delta, rel=0.1)
    assert max(sent) / statistics.mean(sent) <= 1.5
    assert 0.9 < sum(sent) / claimed["bytes_sent_total"] < 1.3
