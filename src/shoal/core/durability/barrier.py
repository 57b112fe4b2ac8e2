"""The durability barrier: hold effects back until the records before them are on disk.

A host passes each effect to the barrier in the order in which a machine returned it. It
appends records to the journal at once and tells the barrier about every durable one.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, final

from shoal.core.calls.events import PauseLane
from shoal.core.channels.events import PauseChannel
from shoal.core.durability.journal import Assigned
from shoal.core.events import (
    DoubtOutput,
    MakeEnvironment,
    PauseOutput,
    Show,
    StageTask,
    StartTask,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shoal.core.durability.journal import Entry
    from shoal.core.events import Effect
    from shoal.model.ids import Attempt


_Before = StageTask | MakeEnvironment
_AT_ONCE: Final = frozenset({PauseChannel, PauseLane, PauseOutput, Show, DoubtOutput})


@final
class Barrier:
    """Holds effects back, in order, until all durable records before them are safe.

    Records are identified by their increasing sequence numbers in the journal.
    """

    def __init__(self, safe: int = 0) -> None:
        """Start with a journal whose records up to `safe` are on disk."""
        self._safe = safe
        self._needed = safe  # must be on disk before the next effect is performed
        self._held: deque[tuple[int, Effect]] = deque()
        self._assigned: dict[Attempt, int] = {}  # by records that are not on disk yet

    def __len__(self) -> int:
        """Return how many effects are held back."""
        return len(self._held)

    @property
    def up(self) -> bool:
        """Whether a durable record is not on disk yet."""
        return self._needed > self._safe

    def rise(self, sequence: int, entry: Entry) -> None:
        """Hold back what follows until the record of this number is on disk."""
        assert sequence > self._needed
        self._needed = sequence
        if type(entry) is Assigned:
            for place in entry.places:
                self._assigned[place.attempt] = sequence

    def holds(self, effect: Effect) -> bool:
        """Return whether `effect` must wait; if so, it is kept until it may go.

        To stage or start a task says nothing of what else was recorded meanwhile: it
        waits for its own assignment, so that no device waits for others' results. Who
        shall write no more is told at once: a slow disk would cost memory without end.
        Output of a task is written at once, so it is there before its end is recorded.
        """
        if self._needed <= self._safe and not self._held:
            return False  # As mostly: calls of functions are not recorded.
        start = effect.start if isinstance(effect, _Before) else effect
        if type(start) is StartTask and start.attempt not in self._assigned:
            return False
        if type(effect) in _AT_ONCE:
            return False
        # What is being let go right now still comes before this.
        self._held.append((self._needed, effect))
        return True

    def synced(self, sequence: int) -> Iterator[Effect]:
        """Note that records up to `sequence` are on disk; yield the released effects.

        The host performs each one before it asks for the next. A host that stops in
        between has crashed, and starts again with a new barrier.
        """
        self._safe = max(self._safe, sequence)
        for attempt in list(self._assigned):
            if self._assigned[attempt] > self._safe:
                break  # They rise.
            del self._assigned[attempt]
        while self._held and self._held[0][0] <= self._safe:
            yield self._held.popleft()[1]
