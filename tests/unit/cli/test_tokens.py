"""The token of the node here is for this machine: addresses may come from anybody."""

from pathlib import Path

import pytest

from shoal.api import client as api
from shoal.api import whereabouts
from shoal.runtime.home import Home


@pytest.mark.parametrize(
    ("node", "shown"),
    [
        ("localhost:1", "ours"),
        ("127.0.0.1:1", "ours"),
        ("[::1]:1", "ours"),
        ("gpu-box:1", ""),
        ("localhost.evil.example:1", ""),
    ],
)
def test_the_token_of_this_node_stays_on_this_machine(
    node: str, shown: str, tmp_path: Path
) -> None:
    home = Home(tmp_path)
    whereabouts.token_file(home).write_text("ours\n")

    assert api._token_for(node, home) == shown
