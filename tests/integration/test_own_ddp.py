"""Scripts that know nothing of shoal train on two machines, by torchrun or not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.found_shoal import Found, linked
from tests.integration.live_shoal import LiveNode, eventually
from tests.integration.namespaces import Internet

pytestmark = pytest.mark.integration

EXAMPLE = Path(__file__).parents[2] / "examples" / "torchrun"
RUN_S = 180.0

NAMES = """
import os, socket
print(socket.gethostbyname("localhost"), socket.gethostbyname(socket.gethostname()))
"""


def shoal(node: LiveNode, *args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command of the user of a node."""
    return subprocess.run(
        [str(Path(sys.executable).parent / "shoal"), *args],
        env=os.environ | {"SHOAL_HOME": str(node.home.path)},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )


@pytest.fixture
def pair(net: Internet, reef: Found) -> LiveNode:
    """Return the first of two nodes on machines of their own, each for one task."""
    where, there = net.machine("one", 11)
    first = reef.found("one", where, "--sandbox", "--no-lan", prefix=there)
    where, there = net.machine("two", 12)
    other = reef.join("two", where, "--sandbox", prefix=there, gates=[first])
    eventually(lambda: linked(first).get(other.id) == "direct", 60.0)
    return first


def test_own_scripts_train_on_two_machines_in_sandboxes(
    pair: LiveNode, tmp_path: Path
) -> None:
    most = ("--cpus", "1.5")  # so that each machine gets one
    ran = shoal(pair, "run", "train.yaml", *most, cwd=EXAMPLE)
    assert ran.returncode == 0, ran.stderr + ran.stdout
    assert "epoch 2" in ran.stdout
    assert "2 processes" in ran.stdout

    spec = tmp_path / "plain.yaml"
    spec.write_text(
        f"command: python train.py\nworkdir: {EXAMPLE}\nnodes: 2\nnetwork: true\n"
        "resources: {cpu: 1.5}\n"
    )
    ran = shoal(pair, "run", str(spec), cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr + ran.stdout
    assert "2 processes" in ran.stdout

    for network in ([], ["--network"]):
        command = ("run", *network, "--", "python3", "-c", NAMES)
        ran = shoal(pair, *command, cwd=tmp_path)
        assert ran.stdout.split()[:1] == ["127.0.0.1"], ran.stderr
