"""Connect to a port of a task, from inside its network.

A task may share the network of the machine, where others listen, too. So a port counts
only if a process of the task listens on it: whoever forwards a port of a task reaches
that task, and never a service of the machine.

Supervisors use this, so it may import only the standard library.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Final

from shoal.drivers.supervisor.process_tree import open_files, read_text

if TYPE_CHECKING:
    from collections.abc import Sequence

LISTENING: Final = "0A"
TABLES: Final = {socket.AF_INET: ("tcp", "tcp6"), socket.AF_INET6: ("tcp6",)}
HERE: Final = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}


def connecting(port: int, family: socket.AddressFamily) -> socket.socket:
    """Return a socket that is being connected to a port of this network's loopback."""
    line = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    line.setblocking(False)
    line.connect_ex((HERE[family], port))  # Whoever gets it sees whether that worked.
    return line


def listens(port: int, family: socket.AddressFamily, pids: Sequence[int]) -> bool:
    """Return whether one of these processes listens on a port, on any address."""
    wanted = {f"socket:[{inode}]" for inode in _listeners(port, family)}
    return bool(wanted) and any(_link(path) in wanted for path in open_files(pids))


def processes() -> list[int]:
    """Return all processes that `/proc` shows, except the first."""
    found = [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208
    return [pid for pid in found if pid > 1]


def _listeners(port: int, family: socket.AddressFamily) -> list[str]:
    """Return the inodes of sockets that listen on a port."""
    found: list[str] = []
    for table in TABLES[family]:
        for line in read_text(f"/proc/self/net/{table}").splitlines()[1:]:
            words = line.split()
            if words[3] == LISTENING and int(words[1].rpartition(":")[2], 16) == port:
                found.append(words[9])
    return found


def _link(path: str) -> str:
    try:
        return os.readlink(path)  # noqa: PTH115
    except OSError:
        return ""
