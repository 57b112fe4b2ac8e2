"""What a training claims to send is what leaves the interfaces of its nodes."""

import json
import subprocess
from collections.abc import Sequence

import pytest
from tests.integration.found_shoal import Found, finished
from tests.integration.live_shoal import LiveNode
from tests.integration.namespaces import Internet
from tests.integration.test_train_nat import said, submit

from shoal.api import shoal_pb2 as pb

pytestmark = pytest.mark.integration

LONG_S = 240.0
SPEC = """
recipe: diloco
nodes: 2
params: {program: gpt, rounds: 8, inner_steps: 8, fragments: 4, compress: float32,
  batch: 4, corpus_bytes: 300000, validation_batches: 1, gather: 120,
  checkpoint_every: 4}
resources: {cpu: 1.5}
"""


def left_so_far(spaces: Sequence[tuple[str, ...]]) -> int:
    """Return the bytes that left these machines, as their interfaces count them."""
    read = ("cat", "/sys/class/net/wan/statistics/tx_bytes")
    return sum(
        int(subprocess.run([*space, *read], capture_output=True, check=True).stdout)
        for space in spaces
    )


def test_the_interfaces_carry_what_a_run_claims_to_send(
    net: Internet, reef: Found
) -> None:
    spaces: list[tuple[str, ...]] = []
    nodes: list[LiveNode] = []
    for number in range(2):
        address, prefix = net.machine(f"node{number}", 10 + number, rate="20mbit")
        spaces.append(prefix)
        start = reef.join if nodes else reef.found
        nodes.append(start(f"node{number}", address, prefix=prefix))
    before = left_so_far(spaces)

    job = submit(nodes[0], SPEC)
    done = finished(nodes[0], job, LONG_S)

    sent = left_so_far(spaces) - before
    text = said(nodes[0], job)
    assert done.state == pb.STATE_DONE, text
    lines = [json.loads(line) for line in text.splitlines() if line[:1] == "{"]
    [claimed] = [line for line in lines if line["event"] == "sent"]
    kinds = claimed["bytes_sent_by_kind"]
    assert kinds["contributions"] > 3 << 20
    assert kinds["checkpoints"] > 1 << 18  # How much is under way at the end varies.
    assert claimed["bytes_sent_total"] == sum(kinds.values())
    assert 0.9 < sent / claimed["bytes_sent_total"] < 1.3
