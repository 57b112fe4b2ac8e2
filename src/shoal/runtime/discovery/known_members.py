"""Members that a node contacts at start: its gates, and earlier neighbours.

Gates are recorded when a node joins and may be gone years later. So a node also keeps
a file of the members it was linked to most recently.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.model.ids import NodeId
from shoal.protocol.limits import ADDRESS_LENGTH_MAX, ADDRESSES_MAX
from shoal.runtime.membership.shoal_membership import write_private

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

KEPT_MAX: Final = 32

Table = dict[NodeId, tuple[str, ...]]


@final
class KnownMembers:
    """Known members and their addresses; the file holds the latest."""

    def __init__(self, path: Path | None, gates: Iterable[str] = ()) -> None:
        """Load gates, whose addresses end in their ids, and the file."""
        self._path = path
        self._gates: Table = {}
        for address in gates:
            _, mark, node = address.rpartition("/p2p/")
            if mark and node:
                known = self._gates.get(NodeId(node), ())
                self._gates[NodeId(node)] = (*known, address)[:ADDRESSES_MAX]
        self._met: Table = _read(path) if path is not None else {}
        self._is_news = False

    def __iter__(self) -> Iterator[tuple[NodeId, tuple[str, ...]]]:
        """Yield all known members, gates first."""
        nodes = dict.fromkeys([*self._gates, *reversed(self._met)])
        for node in nodes:
            addresses = (*self._met.get(node, ()), *self._gates.get(node, ()))
            yield node, tuple(dict.fromkeys(addresses))[:ADDRESSES_MAX]

    def __len__(self) -> int:
        return len(dict.fromkeys([*self._gates, *self._met]))

    @property
    def gates(self) -> tuple[NodeId, ...]:
        """The gates recorded when this node joined."""
        return tuple(self._gates)

    def note(self, node: NodeId, addresses: Sequence[str]) -> None:
        """Remember the addresses of a linked member."""
        fit = tuple(a for a in addresses if len(a) <= ADDRESS_LENGTH_MAX)
        if self._met.get(node) != fit:
            self._is_news = True
        self._met.pop(node, None)
        self._met[node] = fit[:ADDRESSES_MAX]
        if len(self._met) > KEPT_MAX:
            del self._met[next(iter(self._met))]

    async def save(self) -> None:
        """Write the file if anything changed."""
        if self._path is not None and self._is_news:
            self._is_news = False
            text = msgspec.json.format(msgspec.json.encode(self._met), indent=2)
            await asyncio.to_thread(write_private, self._path, text)


def _read(path: Path) -> Table:
    """Return the file's content; empty if it is missing or unreadable."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Table)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return {}
