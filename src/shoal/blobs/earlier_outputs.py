"""Which files of a work directory are outputs of earlier runs, and stay at home.

A job that keeps `out/` makes what is there. If an older `out/` travelled along, the job
would give it back with its own, and each run would return more. So what the outputs of
a job name does not travel, with two exceptions: files that git tracks are somebody's
source, and a line `!out/base.pt` in .shoalignore sends what it names. A pattern that
begins with a wildcard, such as `*.pt`, does not say where the job writes, and keeps
nothing at home. All of this blocks.
"""

from __future__ import annotations

import os
import subprocess
from functools import cached_property
from typing import TYPE_CHECKING, Final, final

from shoal.model.spec.globs import Globs

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from shoal.blobs.ignore_rules import IgnoreRules

GIT_S: Final = 30.0


@final
class EarlierOutputs:
    """Finds outputs of earlier runs, and counts what was left out."""

    def __init__(self, root: Path, patterns: Iterable[str], rules: IgnoreRules) -> None:
        self._root = root
        self._rules = rules
        own = [
            text for text in patterns if text.startswith("!") or Globs([text]).roots[0]
        ]
        self._globs = Globs(own)
        self._roots = [root for root in self._globs.roots if root]
        self.folders: dict[str, None] = {}  # of the job that are empty then
        self._files: dict[str, int] = {}  # by the output that names them
        self._sizes: dict[str, int] = {}

    def leaves_out(self, path: str, size: int) -> bool:
        """Whether a file stays at home; it is counted then."""
        if not self._roots:
            return False
        meant = self._globs.meaning(path)
        if not meant or self._rules.takes_back(path) or path in self._tracked:
            return False
        name, folder = meant[0].text, meant[0].plain
        if path.startswith(f"{folder}/"):
            self.folders[folder] = None  # A script may expect it to be there.
        self._files[name] = self._files.get(name, 0) + 1
        self._sizes[name] = self._sizes.get(name, 0) + size
        return True

    def notes(self) -> list[str]:
        """Say what was left out, and how to send it all the same."""
        return [
            f"left out: {count} {'file' if count == 1 else 'files'} "
            f"({self._sizes[name] / 1e6:,.1f} MB) of {name}, an output that this job "
            f"makes itself; a line !{name} in .shoalignore sends what is there"
            for name, count in self._files.items()
        ]

    @cached_property
    def _tracked(self) -> frozenset[str]:
        """The files that git tracks where outputs would be; none without git."""
        command = ["git", "-c", "core.fsmonitor=false", "ls-files", "-z", "--"]
        try:
            done = subprocess.run(
                [*command, *(f":(literal){root}" for root in self._roots)],
                cwd=self._root,
                env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
                capture_output=True,
                timeout=GIT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return frozenset()
        if done.returncode != 0:
            return frozenset()
        names = done.stdout.decode("utf-8", "surrogateescape").split("\0")
        return frozenset(filter(None, names))
