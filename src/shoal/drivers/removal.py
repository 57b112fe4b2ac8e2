"""Remove a folder tree that a hostile task may have filled.

A task may nest folders deeper than the longest path, remove their permissions, and
leave links that lead out. So removal walks by folder descriptors, two at a time, never
by paths: down into a folder, and up again by `..`, which must be the folder it came
from. It follows no links. It remembers at most `FOLDERS_AT_ONCE` names and `STUCK_MAX`
failures for each level, and removes at most `most` entries per call, because other
work waits for its thread.

All processes of the task are dead by then, so the tree does not change meanwhile.
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
"""Non-empty folders remembered for each level; then the level is read again."""

STUCK_MAX: Final = 64
"""Failed entries of one level after which the removal is given up."""

OWNER_MODE: Final = 0o700
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_HANDLE: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


REMOVED_AT_ONCE: Final = 20_000
"""Entries removed per call: less than a second's work."""

Left = Literal["nothing", "more", "stuck"]


class _EnoughError(Exception):
    """The call has removed its quota of entries."""


class _Level(msgspec.Struct):
    """A folder that is being emptied."""

    identity: tuple[int, int]
    below: list[str] = []  # non-empty folders, at most FOLDERS_AT_ONCE
    inside: str = ""  # the subfolder being emptied now
    stuck: set[str] = set()


def remove_folder(path: str | Path, most: int = REMOVED_AT_ONCE) -> Left:
    """Remove a folder and its content, at most `most` entries per call.

    Return what is left: `more` means call again, `stuck` that some entries cannot be
    removed. A link at `path` itself is left alone. Blocks: call it in a thread.
    """
    try:
        os.rmdir(path)  # noqa: PTH106 - Most are empty: one call does.
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
    """Remove the content of folder `fd` and close it; raise if that fails."""
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
    """Remove files and empty folders of one level; return how many.

    Remembers up to `FOLDERS_AT_ONCE` non-empty folders in `level.below`.
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
    """Descend into the next subfolder; stay if it cannot be opened."""
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
    """Return to the parent folder and remove the subfolder just emptied."""
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
    """Record an entry that cannot be removed; raise after `STUCK_MAX` of them."""
    try:
        yield
    except OSError:
        level.stuck.add(name)
        if len(level.stuck) > STUCK_MAX:
            raise


def _opened(name: str, fd: int | None = None) -> int:
    """Open a folder, making it accessible first if its mode forbids that."""
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
