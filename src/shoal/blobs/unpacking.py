"""Write a decoded tree to a folder. Everything here blocks."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from shoal.blobs import safe_paths
from shoal.errors import ShoalError
from shoal.model.ids import BlobId

if TYPE_CHECKING:
    from pathlib import Path

    from shoal.blobs.store import BlobStore
    from shoal.blobs.trees import Tree


def unpack(store: BlobStore, tree: Tree, directory: Path) -> None:
    """Fill a new folder, which no other user can write to, with all of a tree.

    Links come last, so nothing is ever written through one.
    """
    made: set[str] = set()
    for entry in tree.entries:
        folder = entry.path if entry.kind == "folder" else os.path.dirname(entry.path)  # noqa: PTH120 - as texts
        if folder and folder not in made:
            (directory / folder).mkdir(mode=0o755, parents=True, exist_ok=True)
            made.add(folder)
        if entry.kind in ("file", "program"):
            mode = (
                safe_paths.PROGRAM_MODE
                if entry.kind == "program"
                else safe_paths.FILE_MODE
            )
            _write_new(store, BlobId(entry.to), directory / entry.path, mode)
    for entry in tree.entries:
        if entry.kind == "link":
            (directory / entry.path).symlink_to(entry.to)


def lay_over(store: BlobStore, tree: Tree, directory: Path) -> None:
    """Put a tree into a folder that has contents already; replaces files, not folders.

    Never goes through a link that is there. Links of the tree itself are left out.
    """
    for entry in tree.entries:
        if entry.kind in ("file", "program"):
            mode = (
                safe_paths.PROGRAM_MODE
                if entry.kind == "program"
                else safe_paths.FILE_MODE
            )
            blob = BlobId(entry.to)

            def fill(descriptor: int, blob: BlobId = blob) -> None:
                _copy(store, blob, descriptor)

            safe_paths.write(directory, entry.path, fill, mode)


def _write_new(store: BlobStore, blob: BlobId, path: Path, mode: int) -> None:
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
