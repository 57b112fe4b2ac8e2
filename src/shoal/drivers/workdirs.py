"""Manage the work directories and kept output of attempts.

All paths of an attempt share a prefix: `NAME.work` is the work directory; `NAME.stdout`
and `NAME.stderr` lie beside it, where a sandboxed task cannot reach them. Creating
folders is slow, so each attempt has only this one.
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
"""Attempts of earlier runs of the node whose files are kept for inspection."""

WORK: Final = ".work"
KEPT: Final = (".stdout", ".stdout.1", ".stderr", ".stderr.1")


@final
class Workdirs:
    """The files of all attempts of one worker."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def name(self, attempt: Attempt) -> str:
        """Return the path prefix of an attempt, hashed: its id is no safe name."""
        digest = hashlib.blake2b(str(attempt).encode(), digest_size=DIGEST_BYTES)
        return f"{self.root}/{digest.hexdigest()}"

    def work(self, attempt: Attempt) -> Path:
        """Return the work directory of an attempt."""
        return Path(f"{self.name(attempt)}{WORK}")

    def kept(self, attempt: Attempt, stream: Stream) -> Path:
        """Return the path of an attempt's kept output, which may not exist.

        If the output was long, its previous part is in the same path with `.1` added.
        """
        return Path(f"{self.name(attempt)}.{stream}")

    def make(self, attempt: Attempt) -> Path:
        """Make an empty work directory for an attempt."""
        work = self.work(attempt)
        work.mkdir(mode=PRIVATE, exist_ok=True)
        return work

    def remove(self, attempts: Iterable[Attempt]) -> bool:
        """Remove the files of attempts; return whether to call again for more.

        Each call removes a bounded number of entries, so that it does not occupy its
        thread for long. Never follows links.
        """
        there = set(os.listdir(self.root))  # noqa: PTH208 - Listed once for all.
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
        """Remove the files of all but the latest `OLD_KEPT_MAX` earlier attempts.

        Removes a bounded number of entries of each, so that a node starts quickly; the
        rest goes at later starts.
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
    """Change the owner of a work directory and its content; do not follow links."""
    os.chown(directory, uid, uid, follow_symlinks=False)
    for folder, folders, files in os.walk(directory):
        for name in (*folders, *files):
            os.chown(Path(folder) / name, uid, uid, follow_symlinks=False)
