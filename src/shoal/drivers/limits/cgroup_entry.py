"""Enter cgroups for a while, so that processes forked meanwhile stay there.

Supervisors use this, so it may import only the standard library.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

MYSELF: Final = b"0"


@contextlib.contextmanager
def inside(doors: Sequence[str], home: Sequence[str]) -> Generator[None]:
    """Move this process into the cgroups of `doors`, and back to `home` at the end.

    Both list `cgroup.procs` or `tasks` files. Raises `OSError` if a cgroup cannot be
    entered; the task must not run then.
    """
    try:
        for path in doors:
            _go(path)
        yield
    finally:
        for path in home:
            _go(path)


def _go(path: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, MYSELF)
    finally:
        os.close(fd)
