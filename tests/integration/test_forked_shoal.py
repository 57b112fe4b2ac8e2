"""Nodes and commands of the tests are forks: else the suite takes twice as long."""

import os
from pathlib import Path

import pytest
from tests.integration.cli_home import CliHome
from tests.integration.forked_shoal import ForkedShoal, can_fork
from tests.integration.live_shoal import LiveNode

pytestmark = pytest.mark.integration


def test_a_node_is_a_fork_whatever_shoal_the_path_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", os.defpath)
    node = LiveNode(tmp_path, ("--port", "0", "--without", "p2p"), ())
    try:
        node.start()

        assert isinstance(node.process, ForkedShoal)
    finally:
        node.kill()


def test_a_command_is_a_fork(tmp_path: Path) -> None:
    assert can_fork(("ps",), CliHome(tmp_path).env)
