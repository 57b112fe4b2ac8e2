"""Members that a node contacts at start: its gates, and earlier neighbours.

Gates are recorded when a node joins and may be gone years later. So a node also
remembers the `KEPT_MAX` members that it was linked to most recently.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from shoal.model.ids import NodeId
from shoal.protocol.limits import ADDRESS_LENGTH_MAX, ADDRESSES_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

KEPT_MAX: Final = 32

Places = dict[NodeId, tuple[str, ...]]


@final
class KnownMembers:
    """Known members and their addresses."""

    def __init__(
        self,
        gates: Iterable[str] = (),
        met: Mapping[NodeId, tuple[str, ...]] | None = None,
    ) -> None:
        """Know gates, whose addresses end in their ids, and whom earlier lives met."""
        self._gates: Places = {}
        for address in gates:
            _, mark, node = address.rpartition("/p2p/")
            if mark and node:
                known = self._gates.get(NodeId(node), ())
                self._gates[NodeId(node)] = (*known, address)[:ADDRESSES_MAX]
        self._met: Places = dict(met or {})

    def __iter__(self) -> Iterator[tuple[NodeId, tuple[str, ...]]]:
        """Yield all known members, gates first, then the latest first."""
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

    @property
    def met(self) -> Places:
        """Members that this node was linked to, the oldest first."""
        return dict(self._met)

    def note(self, node: NodeId, addresses: Sequence[str]) -> bool:
        """Remember the addresses of a linked member; return whether they are news."""
        fit = tuple(a for a in addresses if len(a) <= ADDRESS_LENGTH_MAX)
        fit = fit[:ADDRESSES_MAX]
        is_news = self._met.pop(node, None) != fit
        self._met[node] = fit
        if len(self._met) > KEPT_MAX:
            del self._met[next(iter(self._met))]
        return is_news
