"""The file of members that this node was linked to, for its next life."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.core.discovery.known_members import KnownMembers, Places
from shoal.runtime.membership.shoal_membership import write_private

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from shoal.core.discovery.events import KeepMembers

MEMBERS_FILE: Final = "peers.json"


def load_members(path: Path, gates: Iterable[str]) -> KnownMembers:
    """Return gates and earlier neighbours; none of these if the file is unreadable."""
    try:
        met = msgspec.json.decode(path.read_bytes(), type=Places)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        met = {}
    return KnownMembers(gates, met)


@final
class MembersFile:
    """Writes the latest members; what changes meanwhile is written next."""

    def __init__(self, path: Path | None) -> None:
        """Write to `path`; without one, nothing is kept."""
        self._path = path
        self._latest: Places | None = None
        self._writing: asyncio.Task[None] | None = None

    def keep(self, effect: KeepMembers) -> None:
        """Write the file soon."""
        if self._path is None:
            return
        self._latest = effect.met
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write())

    async def close(self) -> None:
        """Wait until the file is written."""
        if self._writing is not None:
            await asyncio.gather(self._writing, return_exceptions=True)

    async def _write(self) -> None:
        assert self._path is not None
        try:
            while (met := self._latest) is not None:
                self._latest = None
                text = msgspec.json.format(msgspec.json.encode(met), indent=2)
                await asyncio.to_thread(write_private, self._path, text)
        finally:
            self._writing = None
