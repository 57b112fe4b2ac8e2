"""Enter cgroups for a while, so that processes forked meanwhile stay there.

Supervisors use this, so it may import only the standard library.
"""

from __future__ import annotations

import contextlib
import errno
import os
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

MYSELF: Final = b"0"
FILES_MAX: Final = 16
"""Two sets of groups, with and without spare CPU time, and the way home."""


@final
class CgroupDoors:
    """The files by which a supervisor enters and leaves cgroups.

    They stay open: a supervisor enters the same groups for each task, and to open a
    file there takes longer than to enter by it.
    """

    def __init__(self) -> None:
        self._files: dict[str, int] = {}

    @contextlib.contextmanager
    def inside(self, doors: Sequence[str], home: Sequence[str]) -> Generator[None]:
        """Move this process into the cgroups of `doors`, and back to `home` at the end.

        Both list `cgroup.procs` or `tasks` files. Raises `OSError` if a cgroup cannot
        be entered; the task must not run then.
        """
        try:
            for path in doors:
                self._go(path)
            yield
        finally:
            for path in home:
                self._go(path)

    def _go(self, path: str) -> None:
        try:
            os.write(self._files.get(path) or self._open(path), MYSELF)
        except OSError as error:
            if error.errno != errno.ENODEV:
                raise
            # The group was removed, and perhaps made again.
            os.close(self._files.pop(path))
            os.write(self._open(path), MYSELF)

    def _open(self, path: str) -> int:
        if len(self._files) >= FILES_MAX:
            for file in self._files.values():
                os.close(file)
            self._files.clear()
        file = self._files[path] = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        return file
