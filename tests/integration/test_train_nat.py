"""Machines that cannot dial each other train one model through a gate."""

import json
from pathlib import Path

import pytest
from tests.integration.cli_home import CliHome
from tests.integration.found_shoal import Found, finished, linked
from tests.integration.live_shoal import LiveNode
from tests.integration.namespaces import Internet
from tests.integration.train_shoal import with_arrays

from shoal.api import shoal_pb2 as pb

pytestmark = pytest.mark.integration

LONG_S = 600.0

# So much of a machine that no second task fits on it.
MOST = "resources: {cpu: 1.5}"
DILOCO = f"""
recipe: diloco
nodes: 2
workdir: %s
params: {{program: train.py, size: 100000, rounds: 8, inner_steps: 3,
  compress: float32, gather: 120}}
{MOST}
"""
DDP = f"""
recipe: ddp
nodes: 2
params: {{program: digits, rounds: 1, inner_steps: 5}}
{MOST}
"""


def submit(node: LiveNode, spec: str) -> str:
    """Hand in a job; return its id."""
    path = node.home.path / "job.yaml"
    path.write_text(spec)
    return CliHome(node.home.path).ok("submit", "-q", str(path)).strip()


def said(node: LiveNode, job: str) -> str:
    """Return all that the tasks of a job have written."""
    with node.client() as client:
        pieces = client.logs(pb.LogsRequest(job=job))
        return b"".join(piece.data for piece in pieces).decode()


def test_two_behind_nat_train_through_a_gate_or_are_told_why_not(
    net: Internet, reef: Found, tmp_path: Path
) -> None:
    public, there = net.machine("gate", 10)
    gate = reef.found("gate", public, "--no-worker", prefix=there)
    workers: list[LiveNode] = []
    for name, last in (("one", 21), ("two", 22)):
        where, there = net.home(name, last, symmetric=True)
        workers.append(reef.join(name, where, prefix=there, gates=[gate]))
    asking, other = workers

    job = submit(asking, DILOCO % with_arrays(tmp_path / "job"))
    done = finished(asking, job, LONG_S)

    text = said(asking, job)
    assert done.state == pb.STATE_DONE, text
    lines = [json.loads(line) for line in text.splitlines() if line[:1] == "{"]
    rounds = [line for line in lines if line["event"] == "round"]
    assert [line["round"] for line in rounds] == list(range(1, 9))
    assert all(line["workers"] == 2 for line in rounds)
    # More than relays of libp2p let through unless they are told to.
    assert rounds[-1]["bytes_sent_total"] > 5 << 20
    assert linked(asking)[other.id] == "relay"

    job = submit(asking, DDP)
    refused = finished(asking, job, LONG_S)

    assert refused.state == pb.STATE_FAILED
    assert "cannot dial" in said(asking, job)
    assert "recipe: diloco" in said(asking, job)
