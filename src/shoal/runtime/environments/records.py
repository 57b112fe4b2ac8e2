"""The folders of environments on disk, and the records that say which are whole.

`ID.TOKEN` is the folder of an environment and `ID.json` its record, written after all
else is on disk. A folder without a record was never finished: it is removed when the
node starts. The token is new each time, because a sandbox that still stands shows the
folder that it was built with. Everything here blocks.
"""

from __future__ import annotations

import ctypes
import os
import re
import secrets
from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.core.environments.events import KeptEnvironment, Kind
from shoal.drivers.removal import remove_folder
from shoal.model.ids import EnvironmentId, OwnerId

if TYPE_CHECKING:
    from pathlib import Path

TOKEN_BYTES: Final = 4
BLOCK_BYTES: Final = 512
COUNTED_MAX: Final = 2_000_000
"""Entries of a folder that are counted; one with more counts as this much."""

_FOLDER: Final = re.compile(r"[0-9a-f]{32}\.[0-9a-f]{8}")
_RECORD: Final = re.compile(r"[0-9a-f]{32}\.json")


class EnvironmentRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What is remembered of an environment. `place` is where tasks see it."""

    folder: str
    kind: Kind
    owners: tuple[OwnerId, ...]
    place: str
    bytes: int = 0
    mark: str = ""


@final
class EnvironmentRecords:
    """All environments of one worker, below one folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._known: dict[EnvironmentId, EnvironmentRecord] = {}

    def load(self, place: str) -> tuple[KeptEnvironment, ...]:
        """Return what is whole, least recently used first; remove all else.

        What was made for another `place` would not work where tasks see it now.
        """
        ages: dict[EnvironmentId, float] = {}
        for path in self.root.iterdir():
            if _RECORD.fullmatch(path.name) is None:
                continue
            id_ = EnvironmentId(path.stem)
            record = _read(path)
            if record is None or not self._is_sound(record, place):
                path.unlink()
                continue
            self._known[id_] = record
            ages[id_] = path.stat().st_mtime
        kept = {record.folder for record in self._known.values()}
        for path in self.root.iterdir():
            if _FOLDER.fullmatch(path.name) and path.name not in kept:
                _remove(path)
        return tuple(
            _told(id_, self._known[id_])
            for id_ in sorted(ages, key=lambda id_: ages[id_])
        )

    def _is_sound(self, record: EnvironmentRecord, place: str) -> bool:
        named = _FOLDER.fullmatch(record.folder) is not None
        fits = record.kind == "cache" or record.place == place
        return named and fits and (self.root / record.folder).is_dir()

    def begin(self, id_: EnvironmentId) -> Path:
        """Make a new folder for an environment."""
        folder = self.root / f"{id_}.{secrets.token_hex(TOKEN_BYTES)}"
        folder.mkdir(mode=0o700)
        return folder

    def finish(self, id_: EnvironmentId, record: EnvironmentRecord) -> None:
        """Remember an environment as whole; it survives a power cut from now on."""
        folder = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            ctypes.CDLL(None).syncfs(folder)
            draft = self.root / f"{id_}.new"
            draft.write_bytes(msgspec.json.encode(record))
            with draft.open("rb") as file:
                os.fsync(file.fileno())
            draft.replace(self._record(id_))
            os.fsync(folder)
        finally:
            os.close(folder)
        self._known[id_] = record

    def note_use(self, id_: EnvironmentId) -> None:
        """Remember that an environment was used now."""
        if id_ in self._known:
            os.utime(self._record(id_))

    def folder(self, id_: EnvironmentId) -> Path:
        """Return the folder of an environment that is whole."""
        return self.root / self._known[id_].folder

    def measured(self, id_: EnvironmentId) -> int | None:
        """Return how large an environment is now; None if it is gone."""
        record = self._known.get(id_)
        return None if record is None else size_of(self.root / record.folder)

    def remove(self, id_: EnvironmentId) -> None:
        """Forget an environment, then remove it: in this order, if a crash comes."""
        record = self._known.pop(id_, None)
        if record is not None:
            self._record(id_).unlink(missing_ok=True)
            _remove(self.root / record.folder)

    def discard(self, folder: Path) -> None:
        """Remove what was begun and not finished."""
        _remove(folder)

    def _record(self, id_: EnvironmentId) -> Path:
        return self.root / f"{id_}.json"


def _told(id_: EnvironmentId, record: EnvironmentRecord) -> KeptEnvironment:
    return KeptEnvironment(id_, record.owners, record.bytes, record.mark)


def _read(path: Path) -> EnvironmentRecord | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=EnvironmentRecord)
    except (OSError, msgspec.MsgspecError):
        return None


def _remove(folder: Path) -> None:
    while remove_folder(folder) == "more":
        pass


def size_of(folder: Path) -> int:
    """Return the disk space of a folder; links and other file systems do not count."""
    total, seen, todo = 0, 0, [str(folder)]
    while todo and seen < COUNTED_MAX:
        try:
            with os.scandir(todo.pop()) as entries:
                for entry in entries:
                    seen += 1
                    found = entry.stat(follow_symlinks=False)
                    total += found.st_blocks * BLOCK_BYTES // max(1, found.st_nlink)
                    if entry.is_dir(follow_symlinks=False):
                        todo.append(entry.path)
        except OSError:
            continue  # A task may have removed it, or closed it to all.
    return total
