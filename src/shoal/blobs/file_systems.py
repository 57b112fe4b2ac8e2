"""Sync a whole file system. Everything here blocks."""

from __future__ import annotations

import ctypes
import os
import platform
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

REPORTS_ERRORS_SINCE: Final = (5, 8)
"""Linux kernels before this one did not say whether a sync had failed."""

_LIBC: Final = ctypes.CDLL(None, use_errno=True)


def _reports_errors() -> bool:
    release = re.match(r"(\d+)\.(\d+)", platform.release())
    if release is None:
        return False
    return tuple(map(int, release.groups())) >= REPORTS_ERRORS_SINCE


can_sync: Final = hasattr(_LIBC, "syncfs") and _reports_errors()
"""Whether this system can do it, and tells if it failed."""


def sync(folder: Path) -> None:
    """Return when all that was written to the file system of a folder is on disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _LIBC.syncfs(descriptor) != 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error), str(folder))
    finally:
        os.close(descriptor)
