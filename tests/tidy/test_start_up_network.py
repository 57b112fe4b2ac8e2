"""libp2p takes a second and 80 MB to load, so nothing does but its own thread."""

from tests.loading import modules_after

ALL_COMMANDS_AND_A_NODE = """
import importlib, pkgutil, shoal.cli
for module in pkgutil.walk_packages(shoal.cli.__path__, "shoal.cli."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
import shoal.api.server.daemon, shoal.runtime.discovery.node_network
"""


def test_neither_commands_nor_a_node_that_is_not_started_load_libp2p() -> None:
    loaded = modules_after(ALL_COMMANDS_AND_A_NODE)

    assert "shoal.cli.nodes.up" in loaded
    assert not {"libp2p", "trio", "zeroconf"} & {*loaded}
