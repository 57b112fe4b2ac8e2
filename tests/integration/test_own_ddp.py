"""Scripts that know nothing of shoal train on two machines, by torchrun or not."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.cli_home import CliHome
from tests.integration.found_shoal import Found, linked
from tests.integration.live_shoal import LiveNode, eventually
from tests.integration.namespaces import Internet
from tests.integration.test_guides import BLOCK
from tests.integration.transcripts import Session

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
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


@pytest.mark.soak  # It loads torch ten times, which may abort when Python ends.
def test_the_guide_to_distributed_training_does_what_it_says(
    pair: LiveNode, tmp_path: Path
) -> None:
    text = (ROOT / "docs" / "guides" / "distributed.md").read_text(encoding="utf-8")
    session = Session(tmp_path, ROOT / "examples")
    session.machines["a"] = CliHome(pair.home.path)
    work = tmp_path / "a" / "work"
    work.mkdir(parents=True)
    played = 0

    for name, kind, body in BLOCK.findall(text):
        if name:
            (work / name).write_text(body, encoding="utf-8")
        elif kind == "shell":
            session.play(re.sub(r"^\$ ", "a$ ", body, flags=re.MULTILINE))
            played += 1

    assert played == 4
    for network in ([], ["--network"]):
        command = ("run", *network, "--", "python3", "-c", NAMES)
        ran = shoal(pair, *command, cwd=tmp_path)
        assert ran.stdout.split()[:1] == ["127.0.0.1"], ran.stderr
