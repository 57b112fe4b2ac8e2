"""A bounded one-way channel between two threads."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar, final

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


@final
class ThreadChannel(Generic[T]):
    """Hands things over in order; what finds it full is dropped and counted.

    The receiver is woken once and then takes batches until nothing is left, so a busy
    lane costs one wake-up for many things.
    """

    def __init__(self, limit: int) -> None:
        self.dropped = 0
        self._limit = limit
        self._items: deque[T] = deque()
        self._lock = threading.Lock()
        self._wake: Callable[[], None] | None = None
        self._awake = False  # The receiver will take all there is, unasked.

    def attach(self, wake: Callable[[], None]) -> None:
        """Wake the receiver by `wake` from now on, and at once if something waits."""
        with self._lock:
            self._wake = wake
            self._awake = bool(self._items)
            waiting = self._awake
        if waiting:
            wake()

    def detach(self) -> None:
        """Wake nobody; things wait for the next receiver, within the limit."""
        with self._lock:
            self._wake = None
            self._awake = False

    def put(self, item: T) -> bool:
        """Add `item`; return False if there is no room for it."""
        with self._lock:
            if len(self._items) >= self._limit:
                self.dropped += 1
                return False
            self._items.append(item)
            wake = None if self._awake else self._wake
            self._awake = self._awake or wake is not None
        if wake is not None:
            wake()
        return True

    def take(self, most: int) -> list[T]:
        """Return the next few things. Fewer than `most`: the next one wakes again."""
        with self._lock:
            count = min(most, len(self._items))
            items = [self._items.popleft() for _ in range(count)]
            if count < most:
                self._awake = False
        return items

    @property
    def full(self) -> bool:
        """Whether the next thing would be dropped."""
        return len(self._items) >= self._limit

    def __len__(self) -> int:
        return len(self._items)
