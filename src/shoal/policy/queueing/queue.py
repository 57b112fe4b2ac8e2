"""The task queue: priority, then fair share, then an order or age.

A waiting entry gains one point of priority every `AGEING_S`. So nothing starves: an
entry of priority p can only be overtaken by entries that came less than
`overtaken_within_s(p)` after it, whatever their priority and owner. All others stay
behind it, and the entries ahead of it are finite in number.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from heapq import heapify, heappop, heapreplace
from math import log
from typing import TYPE_CHECKING, Final, TypeAlias, final

import msgspec

from shoal.model.ids import OwnerId
from shoal.model.resources import GIB, WHOLE_GPU_MILLI, Profile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shoal.policy.queueing.queue_orders import QueueOrder

AGEING_S: Final = 3_600.0
"""Waiting so long counts as much as one point of priority."""

HALF_LIFE_S: Final = 86_400.0
"""Use that is so long ago counts half."""

OWNERS_MAX: Final = 10_000
"""Owners whose use is remembered; the smallest users are forgotten first."""

UNLIMITED_S: Final = 604_800.0
"""Tasks without a time limit count as this long where lengths count."""

NEVER: Final = float("-inf")

Lane: TypeAlias = tuple[OwnerId, int]
"""Entries of one owner and priority: among these only age decides."""


class QueuePool(msgspec.Struct, frozen=True):
    """The size of what owners share; only the proportions matter to the order."""

    cpu_milli: int = 16_000
    memory_bytes: int = 64 * GIB
    gpu_milli: int = WHOLE_GPU_MILLI


class QueueEntry(msgspec.Struct, frozen=True):
    """Tasks of one shape that wait for workers together.

    A group that starts some of its tasks keeps its place among its owner's groups,
    but with a new `served_at`: it does not age while it is served.
    """

    id: str
    owner: OwnerId
    priority: int
    waiting_since: float
    profile: Profile = Profile()
    count: int = 1
    served_at: float = NEVER
    time_limit_s: float | None = None

    # What orders look at.

    @property
    def submitted_s(self) -> float:
        """When it came."""
        return self.waiting_since

    @property
    def slots(self) -> int:
        """GPUs of all its tasks; CPUs if they want no GPU."""
        gpu = self.profile.gpu
        each = gpu.count if gpu else -(-self.profile.cpu_milli // 1_000)
        return self.count * max(1, each)

    @property
    def time_s(self) -> float:
        """How long its tasks run at most."""
        return UNLIMITED_S if self.time_limit_s is None else self.time_limit_s

    @property
    def remaining_s(self) -> float:
        """How long they still run: what waits has not begun."""
        return self.time_s

    @property
    def served_slot_s(self) -> float:
        """What it was served: what waits has not begun."""
        return 0.0


@final
class Usage:
    """Each owner's recent use of the pool; old use fades with a half-life."""

    def __init__(
        self, pool: QueuePool | None = None, half_life_s: float = HALF_LIFE_S
    ) -> None:
        self.pool = pool or QueuePool()
        self._half_life_s = half_life_s
        # Who uses one unit for ever is charged this many unit seconds in the end.
        self._for_ever_s = half_life_s / log(2)
        # Seconds of CPU, memory and GPU of each owner, and when they were counted.
        self._used: dict[OwnerId, tuple[float, float, float, float]] = {}

    def charge(
        self, owner: OwnerId, profile: Profile, seconds: float, now: float
    ) -> None:
        """Count `seconds` of one task of `profile` on its owner."""
        cpu, memory, gpu = self._faded(owner, now)
        gpus = profile.gpu.count * profile.gpu.milli if profile.gpu else 0
        self._used[owner] = (
            cpu + profile.cpu_milli * seconds,
            memory + profile.memory_bytes * seconds,
            gpu + gpus * seconds,
            now,
        )
        if len(self._used) > OWNERS_MAX:
            self._forget(now)

    def share(self, owner: OwnerId, now: float) -> float:
        """Return the owner's part of the resource of which it used most.

        1 means that the owner had all of the pool for a long time; 0, nothing.
        """
        if owner not in self._used:
            return 0.0
        cpu, memory, gpu = self._faded(owner, now)
        for_ever_s = self._for_ever_s
        return max(
            cpu / (max(1, self.pool.cpu_milli) * for_ever_s),
            memory / (max(1, self.pool.memory_bytes) * for_ever_s),
            gpu / (max(1, self.pool.gpu_milli) * for_ever_s),
        )

    def _faded(self, owner: OwnerId, now: float) -> tuple[float, float, float]:
        cpu, memory, gpu, at = self._used.get(owner, (0.0, 0.0, 0.0, now))
        left = 0.5 ** (max(0.0, now - at) / self._half_life_s)
        return cpu * left, memory * left, gpu * left

    def _forget(self, now: float) -> None:
        """Keep the half of the owners who used most."""
        by_share = sorted(self._used, key=lambda owner: (self.share(owner, now), owner))
        for owner in by_share[: len(by_share) // 2]:
            del self._used[owner]


def aged(entry: QueueEntry, now: float) -> int:
    """Return the priority of an entry with the points that it gained by waiting."""
    since = max(entry.waiting_since, entry.served_at)
    return entry.priority + int(max(0.0, now - since) // AGEING_S)


@final
class TaskQueue:
    """Entries by priority, fair share and age, without sorting all for each decision.

    Entries of one owner and priority never change places, so they wait in a lane,
    and only the first of each lane are compared. With an `order`, entries of the same
    aged priority and share are served by that; then all of them are sorted each time.
    """

    def __init__(self, order: QueueOrder | None = None) -> None:
        self._order = order
        self._entries: dict[str, QueueEntry] = {}
        self._lanes: dict[Lane, list[tuple[float, str]]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, id_: object) -> bool:
        return id_ in self._entries

    def put(self, entry: QueueEntry) -> None:
        """Add an entry, or replace the one of the same id."""
        self.remove(entry.id)
        self._entries[entry.id] = entry
        lane = self._lanes.setdefault((entry.owner, entry.priority), [])
        insort(lane, (entry.waiting_since, entry.id))

    def get(self, id_: str) -> QueueEntry | None:
        """Return the entry of this id, if it waits."""
        return self._entries.get(id_)

    def remove(self, id_: str) -> None:
        """Take an entry out, if it waits."""
        entry = self._entries.pop(id_, None)
        if entry is None:
            return
        lane = self._lanes[entry.owner, entry.priority]
        del lane[bisect_left(lane, (entry.waiting_since, id_))]
        if not lane:
            del self._lanes[entry.owner, entry.priority]

    def ordered(self, usage: Usage, now: float) -> Iterator[QueueEntry]:
        """Go through the entries in order, at the price of those taken.

        The queue must not change meanwhile.
        """
        if self._order is not None:
            yield from self._by_order(self._order, usage, now)
            return
        if len(self._lanes) == 1:
            [lane] = self._lanes.values()
            for _, id_ in lane:
                yield self._entries[id_]
            return
        heads = [
            (_rank(self._entries[lane[0][1]], share, now), 0, share, lane)
            for (owner, _), lane in self._lanes.items()
            for share in (usage.share(owner, now),)
        ]
        heapify(heads)
        while heads:
            _, place, share, lane = heads[0]
            yield self._entries[lane[place][1]]
            if place + 1 < len(lane):
                entry = self._entries[lane[place + 1][1]]
                rank = _rank(entry, share, now)
                heapreplace(heads, (rank, place + 1, share, lane))
            else:
                heappop(heads)

    def _by_order(
        self, order: QueueOrder, usage: Usage, now: float
    ) -> list[QueueEntry]:
        shares = {owner: usage.share(owner, now) for owner, _ in self._lanes}

        def rank(entry: QueueEntry) -> tuple[int, float, float, float, str]:
            key = float(order.key(entry, now))
            return _rank(entry, shares[entry.owner], now, key)

        return sorted(self._entries.values(), key=rank)


def _rank(
    entry: QueueEntry, share: float, now: float, key: float = 0.0
) -> tuple[int, float, float, float, str]:
    return -aged(entry, now), share, key, entry.waiting_since, entry.id
