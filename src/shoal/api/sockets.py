"""Unix sockets that nobody but the node's user can open."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path


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
