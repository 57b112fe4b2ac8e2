"""Who may import what: the rest of shoal must never wait for libp2p."""

import re
from pathlib import Path

from tests.loading import modules_after

import shoal

SOURCE = Path(shoal.__file__).parent
FOREIGN = re.compile(r"^\s*(?:import|from) (?:trio|libp2p|multiaddr)\b", re.MULTILINE)


def test_trio_and_libp2p_are_imported_in_one_folder_only() -> None:
    outside = [
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if "net/libp2p" not in path.as_posix() and FOREIGN.search(path.read_text())
    ]

    assert outside == []


def test_libp2p_itself_is_imported_in_two_modules_only() -> None:
    users = [
        path.name
        for path in (SOURCE / "net" / "libp2p").rglob("*.py")
        if re.search(r"^\s*(?:import|from) libp2p\b", path.read_text(), re.MULTILINE)
    ]

    assert sorted(users) == ["host_adapter.py", "host_parts.py"]


def test_importing_the_port_loads_neither_trio_nor_libp2p() -> None:
    loaded = modules_after("import shoal.net.libp2p.port")

    assert not {"trio", "libp2p", "zeroconf"} & {*loaded}
