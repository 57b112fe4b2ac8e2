"""Detect a lost or rolled-back journal by a mark file beside it.

SQLite creates an empty database where there is none, and ignores a write-ahead log
that has vanished. Either would silently forget acknowledged jobs. So after each
transaction the writer records the last entry's number and checksum in a small file.
This write is not synced: a process crash loses nothing, and a power loss can only
leave an earlier number, which never raises a false alarm. `Journal.open` reads the mark
and refuses a journal that is missing, shorter or different.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal, final

import msgspec

from shoal.errors import StoreError

MARK_BYTES: Final = 256

Begin = Literal["", "new", "old"]
"""The user's choice for a journal that does not match its mark: none, start a new
one, or continue with the one on disk."""

_SAID: Final = (
    "put {what} back; or start without the jobs in it by `shoal up --journal new`, "
    "which keeps what is left beside it"
)


class Mark(msgspec.Struct, frozen=True):
    """The last entry known to have been on disk."""

    seq: int
    checksum: bytes


_MARKS: Final = msgspec.json.Decoder(Mark)


@final
class MarkFile:
    """The mark file, open for writing."""

    def __init__(self, path: Path) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._file = os.open(path, flags, 0o600)

    def write(self, seq: int, checksum: bytes, *, durable: bool = False) -> None:
        """Record the last entry; ignore disk errors: the mark is only a safeguard."""
        data = msgspec.json.encode(Mark(seq, checksum)).ljust(MARK_BYTES - 1) + b"\n"
        try:
            os.pwrite(self._file, data, 0)
            if durable:
                os.fsync(self._file)
        except OSError:
            return

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def read_mark(path: Path) -> Mark | None:
    """Return the recorded mark; None if the file is missing or invalid."""
    try:
        with path.open("rb") as file:
            return _MARKS.decode(file.read(MARK_BYTES).strip())
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def refuse_if_gone(path: Path, mark: Mark | None) -> None:
    """Raise if a known journal is missing or empty; call before creating a new one."""
    log = path.with_name(f"{path.name}-wal")
    there = path.exists() and (path.is_dir() or path.stat().st_size > 0)
    if there or not ((mark is not None and mark.seq > 0) or _has_bytes(log)):
        return
    what = "is empty" if path.exists() else "is missing"
    many = f"it had {mark.seq:,} entries" if mark is not None else f"{log} is there"
    raise StoreError(
        f"the journal {path} {what}",
        kind="missing",
        because=f"{many}, and jobs that were acknowledged are in it",
        hint=_SAID.format(what=path.name),
    )


def refuse_if_older(
    path: Path, mark: Mark | None, last: int, checksum: bytes | None
) -> None:
    """Raise if a journal lost or changed its marked entry, which has `checksum` now."""
    if mark is None or (last >= mark.seq and checksum in (None, mark.checksum)):
        return
    if last >= mark.seq:
        because = f"its entry {mark.seq:,} is not the one that was written"
        what = "the right one"
    else:
        because = f"it ends at entry {last:,}, and entry {mark.seq:,} was on disk"
        what = f"{path.name}-wal or a newer {path.name}"
    raise StoreError(
        f"the journal {path} is not what it was",
        kind="missing",
        because=because,
        hint=_SAID.format(what=what) + "; `--journal old` goes on with this one",
    )


def move_away(path: Path) -> None:
    """Rename the files of an old journal with a time stamp, to start a new one."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    for each in _files_of(path):
        if each.exists() or each.is_symlink():
            each.rename(each.with_name(f"{each.name}.{stamp}"))


def _files_of(path: Path) -> Iterator[Path]:
    return (path.with_name(f"{path.name}{end}") for end in ("", "-wal", "-shm"))


def _has_bytes(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return bool(file.read(32).strip(b"\0"))
    except OSError:
        return False
