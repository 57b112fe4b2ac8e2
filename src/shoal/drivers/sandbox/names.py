"""Files by which programs in a sandbox resolve names.

`localhost` and the sandbox's own name must resolve in every sandbox: torch, Jupyter and
many others look them up before they do anything. Where a task shares the machine's
network its own name means an address that other machines can dial, because programs
tell it to their peers.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

from shoal.drivers.sandbox import internet
from shoal.interfaces import address_towards

HOSTNAME: Final = "shoal"
HOSTS: Final = "/etc/hosts"
SWITCH: Final = "/etc/nsswitch.conf"
RESOLVER: Final = "/etc/resolv.conf"

LOCALHOST: Final = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n"

Names = tuple[tuple[str, str], ...]
"""Pairs of a path inside and the file that is mounted there."""


def write(folder: Path) -> dict[str, Names]:
    """Write the files into `folder`; return those for each reach of a task."""
    folder.mkdir(exist_ok=True)
    own = f"{LOCALHOST}127.0.0.1 {HOSTNAME}\n"
    shared = f"{LOCALHOST}{address_towards()} {HOSTNAME}\n{_hosts_of_machine()}"
    alone = (
        (HOSTS, _written(folder / "hosts", own)),
        (SWITCH, _written(folder / "nsswitch.conf", "hosts: files dns\n")),
    )
    resolver = _written(folder / "resolv.conf", f"nameserver {internet.RESOLVER}\n")
    return {
        "none": alone,
        "internet": (*alone, (RESOLVER, resolver)),
        "all": (
            (HOSTS, _written(folder / "hosts.shared", shared)),
            *((path, path) for path in (SWITCH, RESOLVER) if Path(path).exists()),
        ),
    }


def _written(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o644)
    return str(path)


def _hosts_of_machine() -> str:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return Path(HOSTS).read_text(encoding="utf-8")
    return ""
