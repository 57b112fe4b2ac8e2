"""libp2p takes a second and 80 MB to load, so nothing does but its own thread."""

import subprocess
import sys


def test_neither_commands_nor_a_node_that_is_not_started_load_libp2p() -> None:
    script = (
        "import sys, pkgutil, importlib, shoal.cli;"
        "[importlib.import_module(f'shoal.cli.{m.name}') for m in "
        "pkgutil.iter_modules(shoal.cli.__path__) if m.name != '__main__'];"
        "import shoal.api.daemon, shoal.runtime.network;"
        "print([m for m in ('libp2p', 'trio', 'zeroconf') if m in sys.modules])"
    )

    loaded = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    ).stdout

    assert loaded.strip() == "[]"
