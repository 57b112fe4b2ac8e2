"""Virtual time: scheduled calls in a deterministic order."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, final

Call = Callable[..., None]


@final
class Agenda:
    """Calls scheduled in virtual time; equal times run in scheduling order."""

    __slots__ = ("_heap", "_seq", "now", "stopped")

    def __init__(self) -> None:
        self.now = 0.0  # seconds since the world began; changes only in `run`
        self.stopped = False  # once set, no further call is made
        self._heap: list[tuple[float, int, Call, tuple[Any, ...]]] = []
        self._seq = 0

    def __len__(self) -> int:
        return len(self._heap)

    def at(self, when: float, call: Call, *args: Any) -> None:  # noqa: ANN401
        """Schedule a call at `when`, or now if that is past."""
        self._seq += 1
        if when < self.now:
            when = self.now
        heappush(self._heap, (when, self._seq, call, args))

    def after(self, delay_s: float, call: Call, *args: Any) -> None:  # noqa: ANN401
        """Schedule a call in `delay_s` seconds."""
        self._seq += 1
        heappush(self._heap, (self.now + delay_s, self._seq, call, args))

    def run(self, until_s: float) -> None:
        """Make all calls due by `until_s`, unless stopped."""
        heap = self._heap
        while heap and heap[0][0] <= until_s and not self.stopped:
            self.now, _, call, args = heappop(heap)
            call(*args)
        if not self.stopped:
            self.now = max(self.now, until_s)
