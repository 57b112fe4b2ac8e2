"""Unix sockets that nobody but the node's user can open."""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from shoal.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

OWN_MODE: Final = 0o700


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
