"""Pack a folder into a tree: which files travel, and under which names.

No link is followed. A link that stays within the folder travels as a link; one that
leads out, a device or a socket stays at home, and it is said. All of this blocks.
"""

from __future__ import annotations

import itertools
import os
import stat
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.blobs import safe_paths, trees
from shoal.blobs.earlier_outputs import EarlierOutputs
from shoal.blobs.ignore_rules import IgnoreRules
from shoal.blobs.trees import TreeEntry
from shoal.errors import ShoalError, UsageError
from shoal.model.spec.globs import Glob, Globs
from shoal.model.text.texts import is_utf8
from shoal.protocol.blob_hashing import BLOB_BYTES_MAX, Hasher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from shoal.model.ids import BlobId

WORKDIR_BYTES_MAX: Final = 32 << 30
"""A folder that travels with a job; more should lie on workers (`shoal up --share`)."""

MUCH_BYTES: Final = 1 << 30
"""Of a folder with more, its largest parts are named: it may be a mistake."""

LARGEST_NAMED: Final = 3
NAME_SHOWN: Final = 200
NOTES_MAX: Final = 8
READ_BYTES: Final = 1 << 20
LOOKED_AT_MAX: Final = 1_000_000
"""Files that are looked at in search of what travels; no memory holds any number."""


class PackedFolder(msgspec.Struct, frozen=True):
    """Something in a folder."""

    path: str
    kind: str  # as in a tree, or "other"
    size: int = 0
    to: str = ""  # of a link


class Packed(msgspec.Struct, frozen=True):
    """What is to travel: entries of a tree, and what a user should know."""

    entries: tuple[TreeEntry, ...]
    notes: tuple[str, ...] = ()


def pack_workdir(
    root: Path,
    name: Callable[[int], BlobId],
    bytes_max: int = WORKDIR_BYTES_MAX,
    outputs: Iterable[str] = (),
    expect: Callable[[int], None] = lambda _bytes: None,
) -> Packed:
    """Return all of a folder that is not ignored; raise `UsageError` if it is much.

    What `outputs` name stays at home: an earlier run made it. `expect` is told how many
    bytes the files have before the first is read.
    """
    if not root.is_dir():
        raise UsageError(
            f"the workdir {root} is no folder",
            because="there is nothing of this name, or it is a file",
            hint="name a folder, like --workdir .",
        )
    rules = IgnoreRules(root)

    def goes(path: str, is_folder: bool) -> bool:
        return not rules.ignores(path, is_folder=is_folder)

    try:
        earlier = EarlierOutputs(root, outputs, rules)
        everything = walk(root, "", goes)
        found = [e for e in everything if not earlier.leaves_out(e.path, e.size)]
        found += [PackedFolder(folder, "folder") for folder in earlier.folders]
        _refuse_much(root, found, bytes_max)
        expect(sum(each.size for each in found))
        packed = _packed(root, found, name)
        notes = (*_much(found), *earlier.notes(), *packed.notes)
        return Packed(packed.entries, notes)
    except UsageError:
        raise
    except ShoalError as error:
        raise UsageError(
            f"the workdir {root} cannot be read",
            because=str(error),
            hint="make it readable, or leave it out by a line in .shoalignore",
        ) from None


def pack_outputs(
    root: Path,
    patterns: Iterable[str],
    name: Callable[[int], BlobId],
    bytes_max: int,
    *,
    may_lack: bool = False,
) -> Packed:
    """Return what of a task's work directory is to be kept; never follows a link.

    What is not there is noted, unless the task `may_lack` it.
    """
    globs = Globs(patterns)
    found: dict[str, PackedFolder] = {}
    used: set[Glob] = set()
    for below in globs.roots:
        for each in walk(root, below):
            meant = globs.meaning(each.path, is_folder=each.kind == "folder")
            if meant:
                used.update(meant)
                found[each.path] = each
            if len(found) > trees.ENTRIES_MAX:
                break
    missing = [
        f"output '{g.text}' was not there"
        for g in globs.wanted
        if g not in used and not may_lack
    ]
    size = sum(each.size for each in found.values())
    if size > bytes_max or len(found) > trees.ENTRIES_MAX:
        raise ShoalError(
            f"the outputs have {size:,} bytes in {len(found):,} files",
            because=f"the most is {bytes_max:,} bytes in {trees.ENTRIES_MAX:,} files",
        )
    packed = _packed(root, list(found.values()), name)
    return Packed(packed.entries, (*missing, *packed.notes)[:NOTES_MAX])


def pack_path(root: Path, path: str, name: Callable[[int], BlobId]) -> Packed:
    """Return one file, or one folder with all in it, below a folder."""
    below = "/".join(safe_paths.names_of(path))
    found = list(walk(root, below))
    if not found:
        raise ShoalError(f"there is no file or folder '{path[:200]}'")
    if len(found) > trees.ENTRIES_MAX:
        raise ShoalError(
            f"'{path[:200]}' has {len(found):,} files",
            because=f"the most is {trees.ENTRIES_MAX:,}",
        )
    return _packed(root, found, name)


def walk(
    root: Path,
    below: str,
    goes: Callable[[str, bool], bool] = lambda _path, _is_folder: True,
) -> Iterator[PackedFolder]:
    """Yield files at or below a path, and empty folders."""
    if below:
        names = below.split("/")
        try:
            with safe_paths.folder(root, names[:-1]) as parent:
                info = os.stat(names[-1], dir_fd=parent, follow_symlinks=False)
                if not stat.S_ISDIR(info.st_mode):
                    yield _found(below, names[-1], info, parent)
                    return
        except (ShoalError, OSError):
            return
    folders = [below]
    left = LOOKED_AT_MAX
    while folders:
        folder = folders.pop()
        with safe_paths.folder(root, folder.split("/") if folder else []) as parent:
            listed = _listed(parent, left)
            left -= len(listed)
            for name in listed:
                path = f"{folder}/{name}" if folder else name
                try:
                    info = os.stat(name, dir_fd=parent, follow_symlinks=False)
                except FileNotFoundError:
                    continue  # It was there a moment ago.
                is_folder = stat.S_ISDIR(info.st_mode)
                if not goes(path, is_folder):
                    continue
                if is_folder:
                    _refuse_deep(path)
                    folders.append(path)
                else:
                    yield _found(path, name, info, parent)
            if folder and not listed:
                yield PackedFolder(folder, "folder")


def _refuse_deep(path: str) -> None:
    """Go no deeper than a tree can: each step takes longer than the one before."""
    if path.count("/") >= trees.DEPTH_MAX:
        raise ShoalError(
            f"'{path[:100]}...' is more than {trees.DEPTH_MAX} folders deep",
            because="no tree of files can hold it",
            hint="name what is wanted, or leave that folder out",
        )


def _listed(folder: int, most: int) -> list[str]:
    """Return the names in a folder, in order; raise if there are too many to hold."""
    with os.scandir(folder) as there:
        names = [each.name for each in itertools.islice(there, most + 1)]
    if len(names) > most:
        raise ShoalError(
            f"there are more than {LOOKED_AT_MAX:,} files",
            because="no folder with more files than that is read",
            hint="move files that need not be kept to another folder",
        )
    return sorted(names)


def _found(path: str, name: str, info: os.stat_result, parent: int) -> PackedFolder:
    if stat.S_ISLNK(info.st_mode):
        return PackedFolder(path, "link", to=os.readlink(name, dir_fd=parent))
    if not stat.S_ISREG(info.st_mode):
        return PackedFolder(path, "other")
    kind = "program" if info.st_mode & stat.S_IXUSR else "file"
    return PackedFolder(path, kind, info.st_size)


def _packed(
    root: Path, found: list[PackedFolder], name: Callable[[int], BlobId]
) -> Packed:
    entries: dict[str, TreeEntry] = {}
    notes: list[str] = []
    links: list[PackedFolder] = []
    for each in found:
        usable = is_utf8(each.path) and trees.path_flaw(each.path) is None
        if not usable or each.size > BLOB_BYTES_MAX:
            shown = repr(each.path[:NAME_SHOWN])
            notes.append(f"left out: {shown}, which has no usable name or size")
            continue
        match each.kind:
            case "link":
                links.append(each)
            case "file" | "program" as kind:
                with safe_paths.opened(root, each.path) as descriptor:
                    entries[each.path] = TreeEntry(each.path, kind, name(descriptor))
            case "folder":
                entries[each.path] = TreeEntry(each.path, "folder")
            case _:
                notes.append(f"left out: {each.path}, which is no file")
    for link in links:
        entries[link.path] = TreeEntry(link.path, "link", link.to)
    for link in links:
        text = is_utf8(link.to) and not link.to.startswith("/")
        if not text or not trees.inside(link.path, link.to, entries):
            del entries[link.path]
            notes.append(f"left out: {link.path}, a link that leads out of the folder")
    return Packed(tuple(entries.values()), tuple(notes[:NOTES_MAX]))


@final
class Naming:
    """Names files by their bytes, and tells how many of them have been read."""

    def __init__(
        self, told: Callable[[int, int], None] = lambda _done, _total: None
    ) -> None:
        self._told = told
        self._done = self._total = 0

    def expect(self, total: int) -> None:
        """Note how many bytes all files have."""
        self._total = total

    def name(self, descriptor: int) -> BlobId:
        """Return the name of an open file, and keep nothing."""
        hasher = Hasher()
        while data := os.read(descriptor, READ_BYTES):
            hasher.update(data)
            self._done += len(data)
            self._told(min(self._done, self._total), self._total)
        return hasher.name()


def _refuse_much(root: Path, found: list[PackedFolder], bytes_max: int) -> None:
    size = sum(each.size for each in found)
    if size <= bytes_max and len(found) <= trees.ENTRIES_MAX:
        return
    raise UsageError(
        f"the workdir {root} has {_amount(size)} in {len(found):,} files",
        because=f"the most is {_amount(bytes_max)} in {trees.ENTRIES_MAX:,} files; "
        f"the largest are {_largest(found)}",
        hint="leave out what the job does not need, by lines in .shoalignore",
    )


def _much(found: list[PackedFolder]) -> tuple[str, ...]:
    """Return a note if much travels: it travels once, but perhaps by mistake."""
    size = sum(each.size for each in found)
    if size <= MUCH_BYTES:
        return ()
    return (f"the workdir has {_amount(size)}; the largest are {_largest(found)}",)


def _largest(found: list[PackedFolder]) -> str:
    sizes: Counter[str] = Counter()
    for each in found:
        top, _, rest = each.path.partition("/")
        sizes[f"{top}/" if rest else top] += each.size
    return ", ".join(
        f"{name} ({_amount(amount)})"
        for name, amount in sizes.most_common(LARGEST_NAMED)
    )


def _amount(size: int) -> str:
    return f"{size / 1e6:,.0f} MB" if size >= 1e6 else f"{size:,} bytes"
