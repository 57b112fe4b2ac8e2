"""Unix sockets that nobody but the node's user can open."""

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
    """Make a folder for sockets that nobody else can enter, or refuse the one there.

    It may lie where everybody can make one of this name before us. Then its owner
    could put sockets of his own there, or ours away.
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
    """Say why others could reach into a folder; empty if nobody can."""
    if not stat.S_ISDIR(info.st_mode):
        return "it is a link or a file"
    if info.st_uid != os.geteuid():
        return f"it belongs to the user with the number {info.st_uid}"
    if stat.S_IMODE(info.st_mode) & ~OWN_MODE:
        return f"others can enter it: its mode is {stat.S_IMODE(info.st_mode):o}"
    return ""


def check_peer(line: socket.socket, path: Path) -> None:
    """Raise unless whoever listens there is this user, or root.

    Root may also call the node of a user, in that user's home.
    """
    if not hasattr(socket, "SO_PEERCRED"):
        return  # Only Linux tells.
    told = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    _, uid, _ = _PEER.unpack(told)
    if uid in (os.geteuid(), 0):
        return
    folder = path.parent
    is_home = (folder / "node.json").exists()
    if os.geteuid() == 0 and is_home and folder.stat().st_uid == uid:
        return
    raise NotAllowedError(
        f"will not talk to whoever listens at {path}",
        because=f"it is the user with the number {uid}",
        hint="remove that socket, and start the node again: shoal down; shoal up",
    )


@contextmanager
def private(path: Path) -> Generator[None]:
    """Let a socket be made at `path`, instead of an older one, for its owner only.

    The journal is ours, so nobody listens at the older one.
    """
    path.unlink(missing_ok=True)
    before = os.umask(0o177)
    try:
        yield
    finally:
        os.umask(before)
