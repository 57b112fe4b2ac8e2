"""How far a journal was, kept in a file beside it: a journal that is gone is missed.

SQLite makes an empty journal where there is none, and drops what was in a log that has
vanished. Both would forget what was acknowledged, without a word. So after each
transaction its last number and checksum go into a small file under another name. That
waits for no disk: a crash of the process loses nothing of it, and a loss of power only
lets it say an earlier number, which is never an alarm.
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
"""What a user said about a journal that is not what it was: nothing, start a new one,
or go on with the one that is there."""

_SAID: Final = (
    "put {what} back; or start without the jobs in it by `shoal up --journal new`, "
    "which keeps what is left beside it"
)


class Mark(msgspec.Struct, frozen=True):
    """The last entry that is known to have been on disk."""

    seq: int
    checksum: bytes


_MARKS: Final = msgspec.json.Decoder(Mark)


@final
class MarkFile:
    """The file of the mark, open for writing."""

    def __init__(self, path: Path) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._file = os.open(path, flags, 0o600)

    def write(self, seq: int, checksum: bytes, *, durable: bool = False) -> None:
        """Say how far the journal is; it is no reason to stop if that fails."""
        data = msgspec.json.encode(Mark(seq, checksum)).ljust(MARK_BYTES - 1) + b"\n"
        try:
            os.pwrite(self._file, data, 0)
            if durable:
                os.fsync(self._file)
        except OSError:
            return

    def close(self) -> None:
        """Let the file go."""
        os.close(self._file)


def read_mark(path: Path) -> Mark | None:
    """Return what the file says; nothing if there is none, or it makes no sense."""
    try:
        with path.open("rb") as file:
            return _MARKS.decode(file.read(MARK_BYTES).strip())
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def refuse_if_gone(path: Path, mark: Mark | None) -> None:
    """Raise if a journal was there and is not; before anybody makes an empty one."""
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
    """Raise if a journal lacks what it had; `checksum` is of the marked entry here."""
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
    """Let what is left of a journal lie beside it, so that a new one can begin."""
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
