"""Which effects may be performed now: the promise of `core.events`, as a small machine.

A host gives each effect to the barrier in the order in which a machine returned it.
It writes records at once, and tells the barrier of every durable one.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shoal.core.events import Effect


@final
class Barrier:
    """Holds effects back, in order, until all durable records before them are safe.

    Records are known by their sequence numbers in the journal, which rise.
    """

    def __init__(self, safe: int = 0) -> None:
        """Begin with a journal whose records up to `safe` are on disk."""
        self._safe = safe
        self._needed = safe  # must be on disk before the next effect is performed
        self._held: deque[tuple[int, Effect]] = deque()

    def __len__(self) -> int:
        """Return how many effects are held back."""
        return len(self._held)

    @property
    def up(self) -> bool:
        """Whether a durable record is not on disk yet."""
        return self._needed > self._safe

    def rise(self, sequence: int) -> None:
        """Hold back all that follows until the record of this number is on disk."""
        assert sequence > self._needed
        self._needed = sequence

    def holds(self, effect: Effect) -> bool:
        """Return whether `effect` must wait; if so, it is kept until it may go."""
        # What is being let go right now still comes before this.
        if self._needed > self._safe or self._held:
            self._held.append((self._needed, effect))
            return True
        return False

    def synced(self, sequence: int) -> Iterator[Effect]:
        """Take note that records up to `sequence` are on disk; let effects go.

        Each is to be performed before the next is asked for. Whoever stops in
        between has crashed, and starts again with a new barrier.
        """
        self._safe = max(self._safe, sequence)
        while self._held and self._held[0][0] <= self._safe:
            yield self._held.popleft()[1]
