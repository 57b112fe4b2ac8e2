"""Finds this user's node that serves a local port, whatever its home.

A user who may read a node's home needs no token to call it. The node is found through
/proc: the process that holds the listening socket also holds its home's journal open.
Only the owner of a process can see its open files, so nodes of others are not found.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from shoal.runtime.home import Home

if TYPE_CHECKING:
    from collections.abc import Iterator

LISTENS: Final = "0A"
TABLES: Final = ("/proc/net/tcp", "/proc/net/tcp6")


def home_serving(port: int) -> Home | None:
    """Return the home of this user's node that listens on a port, or None.

    Works on Linux only.
    """
    sockets = set(_listening(port))
    if not sockets:
        return None
    for process in Path("/proc").glob("[0-9]*"):
        opened = _opened(process / "fd")
        if sockets.isdisjoint(opened):
            continue
        for path in map(Path, opened):
            home = Home(path.parent)
            if path == home.journal:
                return home
    return None


def _listening(port: int) -> Iterator[str]:
    """Yield this user's sockets that listen on a port, as named in /proc."""
    own = str(os.getuid())
    for table in TABLES:
        try:
            lines = Path(table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            _, local, _, state, _, _, _, uid, _, inode, *_ = line.split()
            if state == LISTENS and uid == own and int(local[-4:], 16) == port:
                yield f"socket:[{inode}]"


def _opened(folder: Path) -> list[str]:
    """Return the open files of a process; skip those that cannot be read."""
    opened: list[str] = []
    with contextlib.suppress(OSError):
        for entry in folder.iterdir():
            with contextlib.suppress(OSError):
                opened.append(str(entry.readlink()))
    return opened
