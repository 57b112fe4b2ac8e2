"""Commands that ask a node start at once: they load neither the node nor its models."""

import pytest
from tests.loading import modules_after

SLOW = {"numpy", "msgspec", "yaml", "rich", "cryptography", "psutil", "trio", "libp2p"}


@pytest.mark.parametrize(
    "command",
    [
        "jobs.ps",
        "jobs.logs",
        "jobs.show",
        "jobs.wait",
        "jobs.cancel",
        "nodes.nodes",
        "lab.sim",
    ],
)
def test_a_command_that_asks_a_node_loads_nothing_slow(command: str) -> None:
    loaded = modules_after(f"import shoal.cli.{command}")

    assert not SLOW & {*loaded}


def test_a_plain_run_loads_nothing_of_scripts_and_archives() -> None:
    loaded = modules_after("import shoal.cli.jobs.run")

    assert not {"shoal.cli.job_input.script_headers", "shutil", "lzma"} & {*loaded}
