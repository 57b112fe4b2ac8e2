"""Commands that ask a node start at once: they load neither the node nor its models."""

import subprocess
import sys

import pytest

SLOW = ("numpy", "msgspec", "yaml", "rich", "cryptography", "psutil", "trio", "libp2p")


@pytest.mark.parametrize(
    "command", ["ps", "logs", "show", "wait", "cancel", "nodes", "sim"]
)
def test_a_command_that_asks_a_node_loads_nothing_slow(command: str) -> None:
    script = (
        f"import sys, shoal.cli.{command}; "
        f"print([m for m in {SLOW} if m in sys.modules])"
    )

    loaded = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    ).stdout

    assert loaded.strip() == "[]"
