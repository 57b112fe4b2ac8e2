"""Open files below a folder that others may change, or have filled with traps.

A task owns its work directory, and the node that reads or writes there may own much
more. So no symbolic link is ever followed, neither at the end of a path nor on the way,
and nothing but plain files is opened. All of this blocks.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from typing import TYPE_CHECKING, Final

from shoal.errors import ShoalError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
FILE_MODE: Final = 0o644
PROGRAM_MODE: Final = 0o755


def names_of(path: str) -> list[str]:
    """Return the parts of a path that stays below a folder; raise if it does not."""
    names = [name for name in path.split("/") if name not in ("", ".")]
    if path.startswith("/") or ".." in names or "\0" in path or not names:
        raise ShoalError(
            f"'{path[:200]}' is not a path below the work directory",
            hint="write it like out/model.pt",
        )
    return names


@contextlib.contextmanager
def folder(root: Path, names: list[str], *, make: bool = False) -> Generator[int]:
    """Open a folder below `root`, by its descriptor; make it if that is wished."""
    owner = root.stat()
    descriptor = os.open(root, _FOLDER)
    try:
        for name in names:
            if make:
                _make_folder(name, descriptor, owner)
            below = os.open(name, _FOLDER, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
        yield descriptor
    except OSError as error:
        raise _explained(error, "/".join(names)) from None
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def opened(root: Path, path: str) -> Generator[int]:
    """Open a plain file below `root` for reading; raise `ShoalError` if it is none."""
    names = names_of(path)
    with folder(root, names[:-1]) as parent:
        try:
            descriptor = os.open(names[-1], _FILE, dir_fd=parent)
        except OSError as error:
            raise _explained(error, path) from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ShoalError(f"'{path[:200]}' is not a file")
        yield descriptor
    finally:
        os.close(descriptor)


def write(
    root: Path, path: str, fill: Callable[[int], None], mode: int = FILE_MODE
) -> None:
    """Make or replace a file below `root`, whole or not at all.

    It belongs to the owner of `root`. `fill` gets its descriptor.
    """
    names = names_of(path)
    owner = root.stat()
    draft = f".{secrets.token_hex(8)}.draft"
    with folder(root, names[:-1], make=True) as parent:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(draft, flags, 0o600, dir_fd=parent)
        try:
            fill(descriptor)
            os.fchmod(descriptor, mode)
            _own(descriptor, owner)
            os.replace(draft, names[-1], src_dir_fd=parent, dst_dir_fd=parent)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(draft, dir_fd=parent)
            raise
        finally:
            os.close(descriptor)


def link(root: Path, path: str, to: str) -> None:
    """Make a link below `root`, unless there is something of that name already."""
    names = names_of(path)
    there = contextlib.suppress(FileExistsError)
    with folder(root, names[:-1], make=True) as parent, there:
        os.symlink(to, names[-1], dir_fd=parent)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of `data`, however many calls it takes."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _make_folder(name: str, parent: int, owner: os.stat_result) -> None:
    try:
        os.mkdir(name, 0o755, dir_fd=parent)
    except FileExistsError:
        return
    made = os.open(name, _FOLDER, dir_fd=parent)
    try:
        _own(made, owner)
    finally:
        os.close(made)


def _own(descriptor: int, owner: os.stat_result) -> None:
    if owner.st_uid != os.geteuid():
        os.fchown(descriptor, owner.st_uid, owner.st_gid)


def _explained(error: OSError, path: str) -> ShoalError:
    match error.errno:
        case errno.ELOOP | errno.ENOTDIR:
            why = "a link or a file is on the way, and links are not followed"
        case errno.ENOENT:
            why = "there is no such file"
        case _:
            why = error.strerror or str(error)
    return ShoalError(f"cannot open '{path[:200]}'", because=why)
