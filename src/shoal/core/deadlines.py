"""Points in time that a machine waits for, each under a key."""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar, final

K = TypeVar("K")


@final
class Deadlines(Generic[K]):
    """At most one deadline per key; the earliest is found without a scan.

    Replaced and dropped entries stay in the heap until they surface. The heap is
    rebuilt when those outnumber the live ones, so its size stays bounded.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, K]] = []
        self._live: dict[K, tuple[float, int]] = {}
        self._seq = 0

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, key: K) -> bool:
        return key in self._live

    def set(self, key: K, at: float) -> None:
        """Wait for `at` under `key`, instead of any other time."""
        self._seq += 1
        self._live[key] = (at, self._seq)
        heapq.heappush(self._heap, (at, self._seq, key))
        if len(self._heap) > 2 * len(self._live) + 64:
            self._heap = [(at, seq, key) for key, (at, seq) in self._live.items()]
            heapq.heapify(self._heap)

    def set_earlier(self, key: K, at: float) -> None:
        """Wait for `at` under `key`, unless something earlier is waited for."""
        live = self._live.get(key)
        if live is None or at < live[0]:
            self.set(key, at)

    def drop(self, key: K) -> None:
        """Wait no longer under `key`."""
        self._live.pop(key, None)

    def next(self) -> float | None:
        """Return the earliest deadline."""
        while self._heap:
            at, seq, key = self._heap[0]
            if self._live.get(key) == (at, seq):
                return at
            heapq.heappop(self._heap)
        return None

    def pop_due(self, now: float) -> list[K]:
        """Take out the keys whose time has come, the earliest first."""
        due: list[K] = []
        while (at := self.next()) is not None and at <= now:
            _, _, key = heapq.heappop(self._heap)
            del self._live[key]
            due.append(key)
        return due
