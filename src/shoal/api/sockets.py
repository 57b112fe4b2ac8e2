"""Unix sockets that only the node's user can open."""

from __future__ import annotations

import os
import socket
import stat
import struct
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from shoal.errors import NotAllowedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

OWN_MODE: Final = 0o700
_PEER: Final = struct.Struct("3i")  # process, user, group


def own_folder(folder: Path) -> None:
    """Create a private folder for sockets; raise if an unsafe one exists.

    Its parent may be world-writable, so another user could have created it first, and
    could then replace or remove the sockets in it.
    """
    folder.parent.mkdir(mode=OWN_MODE, parents=True, exist_ok=True)
    with suppress(FileExistsError):
        folder.mkdir(mode=OWN_MODE)
    if why := _unsafe(folder.lstat()):
        raise UsageError(
            f"the folder {folder} cannot hold the sockets of this node",
            because=why,
            hint="remove it, set XDG_RUNTIME_DIR to a folder of your own, or choose a "
            "shorter SHOAL_HOME",
        )


def _unsafe(info: os.stat_result) -> str:
    """Return why other users could access a folder; empty if they cannot."""
    if not stat.S_ISDIR(info.st_mode):
        return "it is a link or a file"
    if info.st_uid != os.geteuid():
        return f"it belongs to the user with the number {info.st_uid}"
    if stat.S_IMODE(info.st_mode) & ~OWN_MODE:
        return f"others can enter it: its mode is {stat.S_IMODE(info.st_mode):o}"
    return ""


def check_peer(line: socket.socket, path: Path) -> None:
    """Raise unless the listener on a socket runs as this user or as root.

    Root may also call another user's node in that user's home.
    """
    if not hasattr(socket, "SO_PEERCRED"):
        return  # Only Linux reports the peer.
    told = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    _, uid, _ = _PEER.unpack(told)
    if uid in (os.geteuid(), 0):
        return
    folder = path.parent
    is_home = (folder / "node.json").exists()
    if os.geteuid() == 0 and is_home and folder.stat().st_uid == uid:
        return
    raise NotAllowedError(
        f"refused to use the socket {path}",
        because=f"it is the user with the number {uid}",
        hint="remove that socket, and start the node again: shoal down; shoal up",
    )


@contextmanager
def private(path: Path) -> Generator[None]:
    """Remove an old socket at `path`, and make the umask private for a new one.

    This process holds the home's journal, so no other node listens on the old socket.
    """
    path.unlink(missing_ok=True)
    before = os.umask(0o177)
    try:
        yield
    finally:
        os.umask(before)
