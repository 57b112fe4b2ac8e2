"""Which node of this user serves a port of this machine, whatever its home.

A token is for its user's eyes, so whoever may read it there need not be told it. What
a process listens on and has open, only its own user can see.
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
    """Return the home of the node of ours that listens there; None if it is none.

    Only Linux tells.
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
    """Return what /proc calls the sockets of this user that listen on a port."""
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
    """Return what a process has open, if it is ours; what closes meanwhile is not."""
    opened: list[str] = []
    with contextlib.suppress(OSError):
        for entry in folder.iterdir():
            with contextlib.suppress(OSError):
                opened.append(str(entry.readlink()))
    return opened
