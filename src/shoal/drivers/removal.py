"""Remove a folder that a hostile task has filled, with all that is in it.

A task may nest folders deeper than a path can be long, shut them, and leave links that
lead out. So this goes by descriptors of folders, two at a time, never by paths: down
into a folder, and up again by `..`, which must be the folder that it came from. It
follows no link. What it keeps in memory is a name or a few for each level, and it
removes only so much at a time: other work waits for its thread.

No process of the task is alive by then, so nothing moves meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import stat
from typing import TYPE_CHECKING, Final, Literal

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


REMOVED_AT_ONCE: Final = 20_000
"""Entries that are removed before others get the thread: less than a second's work."""

Left = Literal["nothing", "more", "stuck"]


class _EnoughError(Exception):
    """So much was removed as was wished."""


class _Level(msgspec.Struct):
    """A folder that is being emptied."""

    identity: tuple[int, int]
    below: list[str] = []  # folders that are not empty, at most FOLDERS_AT_ONCE
    inside: str = ""  # the one among them that is being emptied now
    stuck: set[str] = set()


def remove_folder(path: str | Path, most: int = REMOVED_AT_ONCE) -> Left:
    """Remove a folder and all in it, but no more than `most` entries of it now.

    Return what is left: if there is `more`, call again; `stuck` is what cannot be
    removed. A link at `path` itself is left alone. Blocks: call it in a thread.
    """
    try:
        os.rmdir(path)  # noqa: PTH106 - Most are empty, and this is one call.
    except FileNotFoundError:
        return "nothing"
    except OSError:
        pass
    else:
        return "nothing"
    try:
        _empty(_opened(str(path)), most)
        os.rmdir(path)  # noqa: PTH106
    except _EnoughError:
        return "more"
    except OSError:
        return "stuck"
    return "nothing"


def _empty(fd: int, most: int) -> None:
    """Remove all that is in a folder, and close it; raise if that is not possible."""
    levels = [_Level(_identity(fd))]
    try:
        while True:
            if most <= 0:
                raise _EnoughError
            level = levels[-1]
            if not level.below:
                most -= _read(fd, level, most)
            if level.below:
                fd = _down(fd, level, levels)
                continue
            if most <= 0:
                raise _EnoughError
            levels.pop()
            if not levels:
                return
            fd = _up(fd, levels[-1])
            most -= 1
    finally:
        os.close(fd)


def _read(fd: int, level: _Level, most: int) -> int:
    """Remove files and empty folders, and return how many.

    Some of the folders that are not empty are remembered.
    """
    removed = 0
    with os.scandir(fd) as entries:
        for entry in entries:
            if removed >= most or len(level.below) == FOLDERS_AT_ONCE:
                break
            if entry.name in level.stuck:
                continue
            if not entry.is_dir(follow_symlinks=False):
                with _sticking(level, entry.name):
                    os.unlink(entry.name, dir_fd=fd)
                    removed += 1
                continue
            try:
                os.rmdir(entry.name, dir_fd=fd)
                removed += 1
            except OSError:
                level.below.append(entry.name)
    return removed


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
