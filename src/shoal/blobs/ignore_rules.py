"""Which files of a work directory stay behind: .gitignore, .shoalignore, defaults.

The rules are those of git. A file in a deeper folder counts more than one above it, a
later line more than an earlier one, `!` takes a line back, and what is in a folder that
is left out cannot be taken back. `.shoalignore` comes after `.gitignore` of the same
folder, so it can take back what git ignores but a job needs. The files of folders
above, up to the root of the repository, count too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from pathspec import GitIgnoreSpec

if TYPE_CHECKING:
    from pathlib import Path

FILES: Final = (".gitignore", ".shoalignore")
ALWAYS: Final = ("/.git", ".git/", "__pycache__/")
"""Counts least of all, so that any rule can take it back."""

RULES_BYTES_MAX: Final = 1 << 20


@final
class IgnoreRules:
    """The rules of one folder and of all above it."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._rules: dict[str, GitIgnoreSpec | None] = {}
        self._above = _above(root)

    def ignores(self, path: str, *, is_folder: bool) -> bool:
        """Whether something stays at home; its folder does not."""
        return self._said(path, is_folder=is_folder) is True

    def takes_back(self, path: str) -> bool:
        """Whether a line with `!` says that a file travels."""
        return self._said(path, is_folder=False) is False

    def _said(self, path: str, *, is_folder: bool) -> bool | None:
        """Return what the most important line says: to stay, to go, or nothing."""
        shown = f"{path}/" if is_folder else path
        folder = path
        while folder:
            folder = folder.rpartition("/")[0]
            rules = self._of(folder)
            below = shown[len(folder) + 1 :] if folder else shown
            said = None if rules is None else rules.check_file(below).include
            if said is not None:
                return said
        for prefix, rules in self._above:
            said = rules.check_file(prefix + shown).include
            if said is not None:
                return said
        return None

    def _of(self, folder: str) -> GitIgnoreSpec | None:
        if folder not in self._rules:
            self._rules[folder] = _rules(self._root / folder)
        return self._rules[folder]


def _above(root: Path) -> list[tuple[str, GitIgnoreSpec]]:
    """Return the rules of folders above, the nearest first, and the obvious last.

    Each comes with the path of `root` as seen from there.
    """
    found: list[tuple[str, GitIgnoreSpec]] = []
    prefix, folder = "", root.absolute()
    while not (folder / ".git").exists() and folder.parent != folder:
        prefix = f"{folder.name}/{prefix}"
        folder = folder.parent
        if (rules := _rules(folder)) is not None:
            found.append((prefix, rules))
    if not (folder / ".git").exists():
        found.clear()  # No repository: what lies above is none of our business.
    return [*found, ("", GitIgnoreSpec.from_lines(ALWAYS))]


def _rules(folder: Path) -> GitIgnoreSpec | None:
    lines: list[str] = []
    for name in FILES:
        try:
            with (folder / name).open(encoding="utf-8", errors="replace") as file:
                lines += file.read(RULES_BYTES_MAX).splitlines()
        except OSError:
            continue
    return GitIgnoreSpec.from_lines(lines) if lines else None
