"""Workers that refused: whoever did is left alone with such tasks for a while."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from shoal.core.deadlines import DeadlineHeap, Deadlines
from shoal.model.ids import NodeId
from shoal.model.resources import Profile

if TYPE_CHECKING:
    from collections.abc import Mapping

SHY_S: Final = 2.0  # a worker that refused a profile is not asked for it again so soon


@final
class Shyness:
    """Who refused which profile of late, and why."""

    def __init__(self, heap: DeadlineHeap) -> None:
        self._reasons: dict[Profile, dict[NodeId, str]] = {}
        self._ends: Deadlines[tuple[Profile, NodeId]] = Deadlines(heap)

    def of(self, profile: Profile) -> Mapping[NodeId, str]:
        """Return who is not to be asked for such a task, and the reason of each."""
        return self._reasons.get(profile, {})

    def refused(
        self, profile: Profile, worker: NodeId, reason: str, now: float
    ) -> None:
        """Leave a worker alone, for a while or until it has news."""
        self._reasons.setdefault(profile, {})[worker] = reason
        self._ends.set((profile, worker), now + SHY_S)

    def ask_again(self, worker: NodeId) -> None:
        """Forget what a worker refused: its load has changed since."""
        for profile in list(self._reasons):
            self._forget(profile, worker)

    def due(self, now: float) -> bool:
        """Forget what was refused long ago; return whether anything was."""
        over = self._ends.pop_due(now)
        for profile, worker in over:
            self._forget(profile, worker)
        return bool(over)

    def _forget(self, profile: Profile, worker: NodeId) -> None:
        reasons = self._reasons.get(profile)
        if reasons is not None and reasons.pop(worker, None) is not None:
            self._ends.drop((profile, worker))
            if not reasons:
                del self._reasons[profile]
