"""Where attempts work, and where their output is kept.

Each attempt has a folder: `work` is its own, and what it writes to its streams is
kept beside that, where it cannot reach it from a sandbox.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from shoal.drivers.warden import WORK

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shoal.model.ids import Attempt

PRIVATE: Final = 0o700
DIGEST_BYTES: Final = 12


@final
class Workdirs:
    """The folders of all attempts of one worker."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, attempt: Attempt) -> Path:
        """Return the folder of an attempt; the id of a scheduler is no safe name."""
        name = str(attempt).encode()
        return self.root / hashlib.blake2b(name, digest_size=DIGEST_BYTES).hexdigest()

    def make(self, attempt: Attempt) -> Path:
        """Make the folder of an attempt, and an empty work directory in it."""
        folder = self.folder(attempt)
        folder.mkdir(mode=PRIVATE, exist_ok=True)
        work = folder / WORK
        work.mkdir(mode=PRIVATE, exist_ok=True)
        return work

    def remove(self, attempts: Iterable[Attempt]) -> None:
        """Remove all that attempts left on disk; never follows a link out."""
        for attempt in attempts:
            shutil.rmtree(self.folder(attempt), ignore_errors=True)


def hand_over(directory: Path, uid: int) -> None:
    """Make a work directory with all in it the property of `uid`; links as links."""
    os.chown(directory, uid, uid, follow_symlinks=False)
    for folder, folders, files in os.walk(directory):
        for name in (*folders, *files):
            os.chown(Path(folder) / name, uid, uid, follow_symlinks=False)
