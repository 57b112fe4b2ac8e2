r"""Patterns of files, as jobs name their outputs: `out/`, `*.pt`, `**/log-?.txt`.

`*`, `?` and `[a-z]` stand for parts of one name, `**` for any folders, `\` takes the
meaning of the next character away. A pattern also means all that is in a folder that
it names, and one that ends in `/` means folders only. `!` in front takes files out.

Patterns come from strangers, and so do the names they are compared with. So a match
takes no more steps than the product of their lengths: nothing is ever tried twice.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, final

from shoal.errors import UsageError
from shoal.model.text.texts import is_utf8

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SEGMENTS_MAX: Final = 64
"""Folders that a pattern may name, one below the other."""

WILD: Final = frozenset("*?[\\")
ANY_FOLDERS: Final = "**"
_SHOWN: Final = 80
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


@final
class Glob:
    """One pattern. It never has an opinion about what is not below the folder."""

    def __init__(self, text: str) -> None:
        """Read a pattern; raise `UsageError` if it is none."""
        if reason := flaw(text):
            raise UsageError(
                f"'{_CONTROL.sub('?', text)[:_SHOWN]}' cannot be an output",
                because=reason,
                hint="write a path or a pattern below the work directory, like out/",
            )
        self.text = text
        self.negated = text.startswith("!")
        rest = text.removeprefix("!")
        parts = [part for part in rest.split("/") if part not in ("", ".")]
        self._folders_only = rest.endswith("/")
        self._below_only = parts[-1:] == [ANY_FOLDERS]
        while parts[-1:] == [ANY_FOLDERS]:
            parts.pop()
        self._parts = tuple(None if p == ANY_FOLDERS else _name(p) for p in parts)
        self.plain = _plain(parts)

    def matches(self, path: str, *, is_folder: bool = False) -> bool:
        """Whether it means this file, or a folder that this file is in."""
        names = path.split("/")
        places = self._skip({0})
        end = len(self._parts)
        for count, name in enumerate(names):
            if end in places and self._reaches(count, len(names), is_folder=is_folder):
                return True
            places = self._skip(self._step(places, name))
            if not places:
                return False
        whole = len(names)
        return end in places and self._reaches(whole, whole, is_folder=is_folder)

    def _reaches(self, count: int, whole: int, *, is_folder: bool) -> bool:
        """Whether a match of the first `count` names counts for all of them."""
        if self._below_only:
            return count < whole
        if count == 0:
            return False
        return count < whole or is_folder or not self._folders_only

    def _step(self, places: Iterable[int], name: str) -> set[int]:
        found: set[int] = set()
        for place in places:
            if place == len(self._parts):
                continue
            part = self._parts[place]
            if part is None:
                found.add(place)
            elif part.match(name):
                found.add(place + 1)
        return found

    def _skip(self, places: set[int]) -> set[int]:
        """Let each `**` stand for no folder at all, too."""
        for place in sorted(places):
            after = place
            while after < len(self._parts) and self._parts[after] is None:
                after += 1
                places.add(after)
        return places


@final
class Globs:
    """Several patterns: a file is meant if one means it, and none takes it out."""

    def __init__(self, patterns: Iterable[str]) -> None:
        """Read patterns; raise `UsageError` if one is none."""
        globs = [Glob(text) for text in patterns]
        self.wanted = [glob for glob in globs if not glob.negated]
        self._unwanted = [glob for glob in globs if glob.negated]

    @property
    def roots(self) -> list[str]:
        """Below which paths all files are that could be meant; none is in another."""
        found: list[str] = []
        for plain in sorted({glob.plain for glob in self.wanted}):
            if not any(_within(plain, root) for root in found):
                found.append(plain)
        return found

    def meaning(self, path: str, *, is_folder: bool = False) -> list[Glob]:
        """Return the patterns that mean a file, unless another takes it out."""
        if any(glob.matches(path, is_folder=is_folder) for glob in self._unwanted):
            return []
        return [g for g in self.wanted if g.matches(path, is_folder=is_folder)]


def flaw(text: str) -> str:
    """Say why a text is no pattern; nothing if it is one."""
    rest = text.removeprefix("!")
    parts = rest.split("/")
    slashes = len(rest) - len(rest.rstrip("\\"))
    if not rest.strip("/. "):
        return "it names nothing"
    if rest.startswith("/") or ".." in parts:
        return "it is not below the work directory, and only that can be given back"
    if _CONTROL.search(rest):
        return "it has a control character"
    if not is_utf8(rest):
        return "it is no text in UTF-8"
    if slashes % 2:
        return "it ends in '\\', and there is no character that this could be for"
    if len(parts) > SEGMENTS_MAX:
        return f"it has {len(parts)} parts, and the most is {SEGMENTS_MAX}"
    return ""


def _plain(parts: Sequence[str]) -> str:
    """Return the folders at the beginning that are named without any pattern."""
    plain: list[str] = []
    for part in parts:
        if WILD.intersection(part):
            break
        plain.append(part)
    return "/".join(plain)


def _within(path: str, root: str) -> bool:
    return not root or path == root or path.startswith(f"{root}/")


@lru_cache(1_024)
def _name(part: str) -> re.Pattern[str]:
    """Return what matches one name; no star ever gives back what it took."""
    first, *rest = _chunks(part)
    if not rest:
        return re.compile(f"{first}\\Z", re.DOTALL)
    *middle, last = rest
    stars = "".join(f"(?>.*?{chunk})" for chunk in middle if chunk)
    return re.compile(f"{first}{stars}.*{last}\\Z", re.DOTALL)


def _chunks(part: str) -> list[str]:
    """Cut a pattern at its stars, and return the regular expression of each piece."""
    chunks = [""]
    place = 0
    while place < len(part):
        char = part[place]
        place += 1
        if char == "*":
            chunks.append("")
            continue
        if char == "?":
            chunks[-1] += "."
        elif char == "[" and (close := _closing(part, place)):
            chunks[-1] += _set(part[place:close])
            place = close + 1
        elif char == "\\" and place < len(part):
            chunks[-1] += re.escape(part[place])
            place += 1
        else:
            chunks[-1] += re.escape(char)
    return chunks


def _closing(part: str, place: int) -> int:
    """Return where the set that begins here ends; 0 if it does not."""
    first = place + (part[place : place + 1] in ("!", "^")) + 1
    return max(0, part.find("]", first))


def _set(inside: str) -> str:
    negated = inside[0] in "!^"
    chars = inside[1:] if negated else inside
    items: list[str] = []
    place = 0
    while place < len(chars):
        low, high = chars[place], chars[place]
        if chars[place + 1 : place + 2] == "-" and place + 2 < len(chars):
            high = chars[place + 2]
            place += 2
        place += 1
        if low <= high:
            items.append(f"{re.escape(low)}-{re.escape(high)}")
    if not items:
        return "." if negated else "(?!)"
    return f"[{'^' if negated else ''}{''.join(items)}]"
