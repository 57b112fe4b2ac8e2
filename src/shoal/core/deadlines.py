"""Points in time that a machine waits for, each under a key."""

from __future__ import annotations

import heapq
from typing import Any, Generic, TypeVar, final

K = TypeVar("K")


@final
class DeadlineHeap:
    """All deadlines of one machine; the earliest is found without asking each part.

    Replaced and dropped entries stay in the heap until they surface. The heap is
    rebuilt when those outnumber the live ones, so its size stays bounded.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Deadlines[Any], Any]] = []
        self._seq = 0
        self.live = 0
        self.overdue = 0  # keys that are due and not taken out yet
        self._sorted_at = 0.0

    def next(self) -> float | None:
        """Return the earliest deadline; what was not taken out is due still."""
        return self._sorted_at if self.overdue else self._next()

    def _next(self) -> float | None:
        heap = self._heap
        while heap:
            entry = heap[0]
            if entry[2].holds(entry):
                return entry[0]
            heapq.heappop(heap)
        return None

    def push(
        self, at: float, owner: Deadlines[K], key: K
    ) -> tuple[float, int, Deadlines[K], K]:
        """Add an entry; it counts while its owner holds it."""
        self._seq += 1
        entry = (at, self._seq, owner, key)
        heapq.heappush(self._heap, entry)
        if len(self._heap) > 2 * self.live + 64:
            kept = [e for e in self._heap if e is entry or e[2].holds(e)]
            heapq.heapify(kept)
            self._heap = kept
        return entry

    def may_be_due(self, now: float) -> bool:
        """Whether there is anything to sort out: no, once that is done for `now`."""
        heap = self._heap
        return bool(heap) and heap[0][0] <= now

    def sort_out(self, now: float) -> None:
        """Hand every part the keys of its own whose time has come."""
        self._sorted_at = now
        while (at := self._next()) is not None and at <= now:
            entry = heapq.heappop(self._heap)
            entry[2].ready(entry[3])


@final
class Deadlines(Generic[K]):
    """The deadlines of one part of a machine, at most one for each key."""

    def __init__(self, heap: DeadlineHeap | None = None) -> None:
        """Share `heap` with the other parts of the machine, if there are any."""
        self._heap = heap or DeadlineHeap()
        self._live: dict[K, tuple[float, int, Deadlines[K], K]] = {}
        self._ready: dict[K, None] = {}  # due, and not taken out yet

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, key: K) -> bool:
        return key in self._live

    def set(self, key: K, at: float) -> None:
        """Wait for `at` under `key`, instead of any other time."""
        self._take_out(key)
        if key not in self._live:
            self._heap.live += 1
        self._live[key] = self._heap.push(at, self, key)

    def set_earlier(self, key: K, at: float) -> None:
        """Wait for `at` under `key`, unless something earlier is waited for."""
        live = self._live.get(key)
        if key not in self._ready and (live is None or at < live[0]):
            self.set(key, at)

    def drop(self, key: K) -> None:
        """Wait no longer under `key`."""
        self._take_out(key)
        if self._live.pop(key, None) is not None:
            self._heap.live -= 1

    def next(self) -> float | None:
        """Return the earliest deadline of all parts that share the heap."""
        return self._heap.next()

    def pop_due(self, now: float) -> list[K]:
        """Take out the keys whose time has come, the earliest first."""
        if self._heap.may_be_due(now):
            self._heap.sort_out(now)
        if not self._ready:
            return []
        due = list(self._ready)
        self._ready.clear()
        self._heap.overdue -= len(due)
        return due

    def holds(self, entry: tuple[float, int, Deadlines[Any], Any]) -> bool:
        """Whether the heap's entry was neither replaced nor dropped."""
        return self._live.get(entry[3]) is entry

    def ready(self, key: K) -> None:
        """Keep a key that is due until it is taken out."""
        self.drop(key)
        self._ready[key] = None
        self._heap.overdue += 1

    def _take_out(self, key: K) -> None:
        if key in self._ready:
            del self._ready[key]
            self._heap.overdue -= 1
