"""Remove a folder that a hostile task has filled, with all that is in it.

A task may nest folders deeper than a path can be long, shut them, and leave links that
lead out. So this goes by descriptors of folders, two at a time, never by paths: down
into a folder, and up again by `..`, which must be the folder that it came from. It
follows no link. What it keeps in memory is a name or a few for each level.

No process of the task is alive by then, so nothing moves meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import stat
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

FOLDERS_AT_ONCE: Final = 16
"""Folders of one level that are remembered; after them the level is read again."""

STUCK_MAX: Final = 64
"""Entries of one level that cannot be removed, before the level is given up."""

OWNER_MODE: Final = 0o700
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_HANDLE: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class _Level(msgspec.Struct):
    """A folder that is being emptied."""

    identity: tuple[int, int]
    below: list[str] = []  # folders that are not empty, at most FOLDERS_AT_ONCE
    inside: str = ""  # the one among them that is being emptied now
    stuck: set[str] = set()


def remove_folder(path: str | Path) -> bool:
    """Remove a folder and all in it; return whether nothing is left of it.

    A link at `path` itself is left alone. Blocks: call it in a thread.
    """
    try:
        os.rmdir(path)  # noqa: PTH106 - Most are empty, and this is one call.
    except FileNotFoundError:
        return True
    except OSError:
        pass
    else:
        return True
    try:
        _empty(_opened(str(path)))
        os.rmdir(path)  # noqa: PTH106
    except OSError:
        return False
    return True


def _empty(fd: int) -> None:
    """Remove all that is in a folder, and close it; raise if that is not possible."""
    levels = [_Level(_identity(fd))]
    try:
        while True:
            level = levels[-1]
            if not level.below:
                _read(fd, level)
            if level.below:
                fd = _down(fd, level, levels)
                continue
            levels.pop()
            if not levels:
                return
            fd = _up(fd, levels[-1])
    finally:
        os.close(fd)


def _read(fd: int, level: _Level) -> None:
    """Remove files and empty folders; remember some of the folders that are not."""
    with os.scandir(fd) as entries:
        for entry in entries:
            if entry.name in level.stuck:
                continue
            if not entry.is_dir(follow_symlinks=False):
                with _sticking(level, entry.name):
                    os.unlink(entry.name, dir_fd=fd)
                continue
            try:
                os.rmdir(entry.name, dir_fd=fd)
            except OSError:
                level.below.append(entry.name)
            if len(level.below) == FOLDERS_AT_ONCE:
                return


def _down(fd: int, level: _Level, levels: list[_Level]) -> int:
    """Go into a folder; stay if it cannot be opened."""
    name = level.inside = level.below.pop()
    inner = -1
    with _sticking(level, name):
        inner = _opened(name, fd)
    if inner < 0:
        return fd
    os.close(fd)
    levels.append(_Level(_identity(inner)))
    return inner


def _up(fd: int, level: _Level) -> int:
    """Go back to the folder above, and remove the one that is empty now."""
    outer = os.open("..", _FOLDER, dir_fd=fd)
    os.close(fd)
    if _identity(outer) != level.identity:
        os.close(outer)
        raise OSError("a folder was moved while it was being removed")
    with _sticking(level, level.inside):
        os.rmdir(level.inside, dir_fd=outer)
    return outer


@contextlib.contextmanager
def _sticking(level: _Level, name: str) -> Generator[None]:
    """Remember what cannot be removed, and go on with the rest."""
    try:
        yield
    except OSError:
        level.stuck.add(name)
        if len(level.stuck) > STUCK_MAX:
            raise


def _opened(name: str, fd: int | None = None) -> int:
    """Open a folder, whatever its mode, so that all in it can be removed."""
    try:
        found = os.open(name, _FOLDER, dir_fd=fd)
    except PermissionError:
        handle = os.open(name, _HANDLE, dir_fd=fd)
        try:
            os.chmod(f"/proc/self/fd/{handle}", OWNER_MODE)  # noqa: PTH101
        finally:
            os.close(handle)
        found = os.open(name, _FOLDER, dir_fd=fd)
    try:
        if stat.S_IMODE(os.fstat(found).st_mode) & OWNER_MODE != OWNER_MODE:
            os.fchmod(found, OWNER_MODE)
    except OSError:
        os.close(found)
        raise
    return found


def _identity(fd: int) -> tuple[int, int]:
    info = os.fstat(fd)
    return info.st_dev, info.st_ino
