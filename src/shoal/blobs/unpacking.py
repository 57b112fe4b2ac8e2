"""Write a decoded tree to a folder. Everything here blocks."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING

from shoal.blobs import safe_paths
from shoal.errors import ShoalError
from shoal.model.ids import BlobId

if TYPE_CHECKING:
    from pathlib import Path

    from shoal.blobs.store import BlobStore
    from shoal.blobs.trees import Tree, TreeEntry


def unpack(store: BlobStore, tree: Tree, directory: Path) -> None:
    """Fill a new folder, which no other user can write to, with all of a tree.

    Links come last, so nothing is ever written through one.
    """
    made: set[str] = set()
    root = str(directory)  # Texts: to make paths takes as long as to make files.
    for entry in tree.entries:
        folder = entry.path if entry.kind == "folder" else os.path.dirname(entry.path)  # noqa: PTH120 - as texts
        if folder and folder not in made:
            (directory / folder).mkdir(mode=0o755, parents=True, exist_ok=True)
            made.add(folder)
        if entry.kind in ("file", "program"):
            _write_new(store, BlobId(entry.to), f"{root}/{entry.path}", _mode(entry))
    for entry in tree.entries:
        if entry.kind == "link":
            (directory / entry.path).symlink_to(entry.to)


def lay_over(store: BlobStore, tree: Tree, directory: Path, below: str = "") -> None:
    """Put a tree into a folder that has contents already; replaces files, not folders.

    `below` is a folder in it to begin at. Nothing is written through a link, and a link
    of the tree replaces nothing that is there.
    """
    for entry in tree.entries:
        path = f"{below}/{entry.path}" if below else entry.path
        if entry.kind == "folder":
            with safe_paths.folder(directory, path.split("/"), make=True):
                pass
        elif entry.kind != "link":
            fill = functools.partial(_copy, store, BlobId(entry.to))
            safe_paths.write(directory, path, fill, _mode(entry))
    for entry in tree.entries:
        if entry.kind == "link":
            path = f"{below}/{entry.path}" if below else entry.path
            safe_paths.link(directory, path, entry.to)


def _mode(entry: TreeEntry) -> int:
    is_program = entry.kind == "program"
    return safe_paths.PROGRAM_MODE if is_program else safe_paths.FILE_MODE


def _write_new(store: BlobStore, blob: BlobId, path: str, mode: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, mode)
    try:
        _copy(store, blob, descriptor)
        os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)


def _copy(store: BlobStore, blob: BlobId, descriptor: int) -> None:
    def write(data: bytes) -> None:
        safe_paths.write_all(descriptor, data)

    if not store.copy(blob, write):
        raise ShoalError(
            "a file of the tree is not what it should be",
            because="it was damaged on this node's disk, and has been dropped",
            hint="try again: it will be fetched anew",
        )
