"""Where attempts work, and where their output is kept.

An attempt has one name, and all that is its own begins with it: `NAME.work` is the
work directory, `NAME.stdout` and `NAME.stderr` are kept beside it, where a task in a
sandbox cannot reach them. A folder costs time, so there is one for each attempt.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from shoal.drivers.removal import remove_folder

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shoal.drivers import Stream
    from shoal.model.ids import Attempt

PRIVATE: Final = 0o700
DIGEST_BYTES: Final = 12
OLD_KEPT_MAX: Final = 100
"""Attempts of earlier lives whose folders and output stay, for people to look at."""

WORK: Final = ".work"
KEPT: Final = (".stdout", ".stdout.1", ".stderr", ".stderr.1")


@final
class Workdirs:
    """The folders of all attempts of one worker."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def name(self, attempt: Attempt) -> str:
        """Return how all paths of an attempt begin; its id is no safe file name."""
        digest = hashlib.blake2b(str(attempt).encode(), digest_size=DIGEST_BYTES)
        return f"{self.root}/{digest.hexdigest()}"

    def work(self, attempt: Attempt) -> Path:
        """Return the work directory of an attempt."""
        return Path(f"{self.name(attempt)}{WORK}")

    def kept(self, attempt: Attempt, stream: Stream) -> Path:
        """Return the file with the end of what an attempt wrote, if it wrote.

        What came before it, if that was much, is in a file whose name has `.1` added.
        """
        return Path(f"{self.name(attempt)}.{stream}")

    def make(self, attempt: Attempt) -> Path:
        """Make an empty work directory for an attempt."""
        work = self.work(attempt)
        work.mkdir(mode=PRIVATE, exist_ok=True)
        return work

    def remove(self, attempts: Iterable[Attempt]) -> bool:
        """Remove what attempts left on disk; return whether there is more to remove.

        A task may have left so much that others should have the thread in between.
        Never follows a link out.
        """
        there = set(os.listdir(self.root))  # noqa: PTH208 - Once for all of them.
        more = False
        for attempt in attempts:
            name = self.name(attempt)
            more = remove_folder(f"{name}{WORK}") == "more" or more
            base = os.path.basename(name)  # noqa: PTH119
            for ending in KEPT:
                if base + ending in there:
                    Path(name + ending).unlink(missing_ok=True)
        return more

    def trim(self) -> None:
        """Remove what attempts of earlier lives left, but for the latest of them.

        A node that starts does not wait for huge ones: the rest goes at later starts.
        """
        ages: dict[str, float] = {}
        for entry in os.scandir(self.root):
            name, dot, ending = entry.name.partition(".")
            if f"{dot}{ending}" in (WORK, *KEPT):
                changed = entry.stat(follow_symlinks=False).st_mtime
                ages[name] = max(changed, ages.get(name, 0.0))
        for name in sorted(ages, key=lambda name: -ages[name])[OLD_KEPT_MAX:]:
            remove_folder(self.root / f"{name}{WORK}")
            for ending in KEPT:
                (self.root / f"{name}{ending}").unlink(missing_ok=True)


def hand_over(directory: Path, uid: int) -> None:
    """Make a work directory with all in it the property of `uid`; links as links."""
    os.chown(directory, uid, uid, follow_symlinks=False)
    for folder, folders, files in os.walk(directory):
        for name in (*folders, *files):
            os.chown(Path(folder) / name, uid, uid, follow_symlinks=False)
