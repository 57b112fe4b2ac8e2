"""Points in time that a machine waits for, each under a key."""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace
from typing import Any, Generic, TypeVar, final

import msgspec

K = TypeVar("K")


class _Entry(msgspec.Struct, order=True):
    """One deadline in the heap: by time, then by who came first.

    One that was put off, as most are again and again, keeps its place in the heap
    until it surfaces: until then `due` and `set_as` are later than `at` and `seq`.
    """

    at: float
    seq: int
    owner: Deadlines[Any] | None  # None once it was replaced, dropped or has fallen due
    key: Any
    due: float
    set_as: int

    def surfaced(self) -> _Entry:
        """Take the place that it was put off to."""
        self.at, self.seq = self.due, self.set_as
        return self


@final
class DeadlineHeap:
    """All deadlines of one machine; the earliest is found without asking each part.

    Replaced and dropped entries stay in the heap until they surface. The heap is
    rebuilt when those outnumber the live ones, so its size stays bounded.
    """

    def __init__(self) -> None:
        self.entries: list[_Entry] = []
        self.live = 0
        self.overdue = 0  # keys that are due and not taken out yet
        self.seq = 0  # how many were set so far
        self._sorted_at = 0.0

    def next(self) -> float | None:
        """Return the earliest deadline; what was not taken out is due still."""
        if self.overdue:
            return self._sorted_at
        entries = self.entries
        while entries:
            first = entries[0]
            if first.owner is None:
                heappop(entries)
            elif first.set_as != first.seq:
                heapreplace(entries, first.surfaced())
            else:
                return first.at
        return None

    def push(self, at: float, owner: Deadlines[K], key: K) -> _Entry:
        """Add an entry; it counts while it has its owner."""
        self.seq = seq = self.seq + 1
        entry = _Entry(at, seq, owner, key, at, seq)
        entries = self.entries
        heappush(entries, entry)
        if len(entries) > 2 * self.live + 64:
            entries[:] = [each for each in entries if each.owner is not None]
            heapify(entries)
        return entry

    def sort_out(self, now: float) -> None:
        """Hand every part the keys of its own whose time has come."""
        self._sorted_at = now
        entries = self.entries
        while entries and entries[0].at <= now:
            entry = heappop(entries)
            if entry.owner is None:
                continue
            if entry.set_as != entry.seq:
                heappush(entries, entry.surfaced())
            else:
                entry.owner.ready(entry.key)


@final
class Deadlines(Generic[K]):
    """The deadlines of one part of a machine, at most one for each key."""

    def __init__(self, heap: DeadlineHeap | None = None) -> None:
        """Share `heap` with the other parts of the machine, if there are any."""
        self._heap = heap or DeadlineHeap()
        self._live: dict[K, _Entry] = {}
        self._ready: dict[K, None] = {}  # due, and not taken out yet; never live, too

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, key: K) -> bool:
        return key in self._live

    def set(self, key: K, at: float | None) -> None:
        """Wait for `at` under `key`, instead of any other time; None: no longer."""
        if at is None:
            self.drop(key)
            return
        live, heap = self._live.get(key), self._heap
        if live is None:
            heap.live += 1
            if self._ready:
                self._take_out(key)
        elif at >= live.at:
            heap.seq += 1
            live.due, live.set_as = at, heap.seq
            return
        else:
            live.owner = None
        self._live[key] = heap.push(at, self, key)

    def set_earlier(self, key: K, at: float) -> None:
        """Wait for `at` under `key`, unless something earlier is waited for."""
        live = self._live.get(key)
        if key not in self._ready and (live is None or at < live.due):
            self.set(key, at)

    def drop(self, key: K) -> None:
        """Wait no longer under `key`."""
        live = self._live.pop(key, None)
        if live is not None:
            live.owner = None
            self._heap.live -= 1
        elif self._ready:
            self._take_out(key)

    def rename(self, key: K, new: K) -> None:
        """Wait under another key, if anything is waited for."""
        live = self._live.get(key)
        if live is not None:
            at = live.due
            self.drop(key)
            self.set(new, at)

    def next(self) -> float | None:
        """Return the earliest deadline of all parts that share the heap."""
        return self._heap.next()

    def pop_due(self, now: float) -> list[K]:
        """Take out the keys whose time has come, the earliest first."""
        entries = self._heap.entries
        if entries and entries[0].at <= now:
            self._heap.sort_out(now)
        if not self._ready:
            return []
        due = list(self._ready)
        self._ready.clear()
        self._heap.overdue -= len(due)
        return due

    def ready(self, key: K) -> None:
        """Keep a key that is due until it is taken out."""
        self.drop(key)
        self._ready[key] = None
        self._heap.overdue += 1

    def _take_out(self, key: K) -> None:
        if key in self._ready:
            del self._ready[key]
            self._heap.overdue -= 1
