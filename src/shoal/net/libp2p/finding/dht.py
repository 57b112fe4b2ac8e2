"""Provide keys in the DHT slowly, and look up providers quickly."""

from __future__ import annotations

import random
from time import monotonic, time
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, final

import trio

from shoal.model.directory import branches
from shoal.net.libp2p.finding import address_book, dht_keys
from shoal.net.libp2p.thread.notices import Found
from shoal.net.libp2p.thread.trio_calls import start
from shoal.protocol.limits import ADDRESSES_MAX
from shoal.protocol.messages import PeerAddress

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.model.ids import NodeId
    from shoal.net.libp2p.thread.shared_state import SharedState

PACE_S: Final = 1.5
"""Between two keys: a node of the DHT takes ten records in ten seconds from a peer."""

IDLE_S: Final = 5.0
REPAIR_S: Final = 900.0
"""A record is written again after this, should those that kept it have gone."""

ASKED_MAX: Final = 10  # nodes asked for one key
CROWD_ASKED_MAX: Final = 5
LOOKUP_S: Final = 8.0
LOOKUPS_MAX: Final = 4
WAITING_MAX: Final = 64

Records = dict["NodeId", tuple[str, ...]]


class Dht(Protocol):
    """What the directory needs of a host: a part of `adapter.Host`."""

    def connected(self) -> list[NodeId]:
        """Return the peers that there are connections to."""
        ...

    def closest_known(self, key: bytes) -> list[NodeId]:
        """Return the known nodes that are nearest to a key."""
        ...

    async def closest(self, key: bytes) -> list[NodeId]:
        """Return the nodes that records with this key belong to."""
        ...

    async def provide(self, key: bytes) -> bool:
        """Store a record of ours at its nearest nodes; return whether any took it."""
        ...

    def records_here(self, key: bytes) -> list[tuple[NodeId, tuple[str, ...]]]:
        """Return the records with this key that this node keeps."""
        ...

    async def records_at(
        self, peer: NodeId, key: bytes
    ) -> list[tuple[NodeId, tuple[str, ...]]]:
        """Ask one node for the records with this key."""
        ...


class Written(NamedTuple):
    """Where and when a record of ours was written last."""

    at: float
    branch: str


@final
class DhtDirectory:
    """This node's records in the DHT, and its questions."""

    def __init__(
        self, shared: SharedState, host: Dht, wall: Callable[[], float] = time
    ) -> None:
        """Keep records by the time of day that `wall` tells."""
        self._shared = shared
        self._host = host
        self._wall = wall
        self._path = branches.path(shared.node)
        self._written: dict[tuple[str, int], Written] = {}  # by key and span
        self._limiter = trio.CapacityLimiter(LOOKUPS_MAX)
        self._waiting = 0
        self._news = trio.Event()  # Set when the keys have changed.
        # Each node writes ahead at another moment, or all would at once.
        self._ahead_s = dht_keys.AHEAD_S * random.random()

    async def run(self) -> None:
        """Keep the records of this node where they belong, a key at a time."""
        while True:
            due = (
                self._due(self._wall(), monotonic()) if self._host.connected() else None
            )
            if due is not None and await self._place(*due):
                await trio.sleep(PACE_S * random.uniform(0.8, 1.2))
                continue
            pause_s = IDLE_S if due is None and self._host.connected() else PACE_S
            with trio.move_on_after(pause_s):
                await self._news.wait()
            self._news = trio.Event()

    def changed(self) -> None:
        """Note that there are other keys to provide."""
        self._news.set()

    async def look_up(self, lookup: int, key: str, limit: int) -> None:
        """Find providers; report those that were found in time."""
        found: Records = {}
        if self._waiting < WAITING_MAX:
            self._waiting += 1
            with trio.move_on_after(LOOKUP_S):
                async with self._limiter:
                    await self._search(key, limit, found)
            self._waiting -= 1
        else:
            self._shared.counts["look-up-refused"] += 1
        rows = random.sample(sorted(found.items()), min(limit, len(found)))
        providers = tuple(self._known(peer, addresses) for peer, addresses in rows)
        self._shared.notices.put(Found(lookup, providers))

    def _known(self, peer: NodeId, addresses: tuple[str, ...]) -> PeerAddress:
        self._shared.book.add(peer, [a for a in addresses if peer in a])
        return PeerAddress(peer, address_book.direct_ones(addresses)[:ADDRESSES_MAX])

    async def _search(self, key: str, limit: int, found: Records) -> None:
        this_span = dht_keys.span(self._wall())
        way = "".join(random.choices("01", k=branches.LEVELS_MAX))
        for at_span in (this_span, this_span - 1):
            first = branches.first_level(self._shared.nodes)
            levels = branches.searching(first, limit)
            level: int | None = next(levels)
            while level is not None:
                records = await self._records(key, way[:level], at_span, ASKED_MAX)
                found.update(records)
                level = branches.following(
                    levels, (len(records) >= branches.FULL, len(found))
                )
            if found:
                return

    async def _records(
        self, key: str, branch: str, at_span: int, asked_max: int
    ) -> Records:
        record = dht_keys.record_key(self._shared.settings.shoal, key, branch, at_span)
        records: Records = dict(self._host.records_here(record))

        async def ask(peer: NodeId) -> None:
            if peer in asked or len(asked) >= asked_max:
                return
            asked.add(peer)
            found = await self._host.records_at(peer, record)
            records.update(
                (node, where) for node, where in found if address_book.is_id(node)
            )

        asked: set[NodeId] = {self._shared.node}
        async with trio.open_nursery() as nursery:
            # Those that we know may do, while others are slow to name better ones.
            for peer in self._host.closest_known(record)[: asked_max // 2]:
                start(nursery, ask, peer)
            for peer in await self._host.closest(record):
                start(nursery, ask, peer)
        records.pop(self._shared.node, None)
        return records

    def _due(self, wall_s: float, now: float) -> tuple[str, int] | None:
        """Return a key that must be written for a span, if there is one."""
        spans = {dht_keys.span(wall_s), dht_keys.span(wall_s + self._ahead_s)}
        self._written = {
            (key, at_span): written
            for (key, at_span), written in self._written.items()
            if at_span in spans and key in self._shared.keys
        }
        for at_span in sorted(spans):
            for key in self._shared.keys:
                written = self._written.get((key, at_span))
                if written is None or now - written.at > REPAIR_S:
                    return key, at_span
        return None

    async def _place(self, key: str, at_span: int) -> bool:
        """Write a record at the first place with room; return whether that worked."""
        before = self._written.get((key, at_span)) or self._written.get(
            (key, at_span - 1)
        )
        first = branches.first_level(self._shared.nodes)
        steps = branches.placing(first if before is None else len(before.branch))
        step: tuple[int, bool] | None = next(steps)
        shoal = self._shared.settings.shoal
        while step is not None:
            level, writes = step
            branch = self._path[:level]
            if writes:
                record = dht_keys.record_key(shoal, key, branch, at_span)
                if not await self._host.provide(record):
                    self._shared.counts["provide-failed"] += 1
                    return False
                self._shared.counts["provided"] += 1
                self._written[key, at_span] = Written(monotonic(), branch)
            others = await self._records(key, branch, at_span, CROWD_ASKED_MAX)
            step = branches.following(steps, len(others) >= branches.FULL)
        return True
