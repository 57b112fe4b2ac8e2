"""Workers that refused a profile, which are not asked for it again for a while.

A refusal is forgotten after `REFUSED_S`, or as soon as the worker's load changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from shoal.core.deadlines import DeadlineHeap, Deadlines
from shoal.model.ids import NodeId
from shoal.model.resources import Profile

if TYPE_CHECKING:
    from collections.abc import Mapping

REFUSED_S: Final = 2.0


@final
class RefusalCache:
    """Knows who refused which profile recently, and why."""

    def __init__(self, heap: DeadlineHeap) -> None:
        self._reasons: dict[Profile, dict[NodeId, str]] = {}
        self._ends: Deadlines[tuple[Profile, NodeId]] = Deadlines(heap)

    def of(self, profile: Profile) -> Mapping[NodeId, str]:
        """Return the workers not to ask for a profile, and their reasons."""
        return self._reasons.get(profile, {})

    def refused(
        self, profile: Profile, worker: NodeId, reason: str, now: float
    ) -> None:
        """Note that a worker refused a profile."""
        self._reasons.setdefault(profile, {})[worker] = reason
        self._ends.set((profile, worker), now + REFUSED_S)

    def ask_again(self, worker: NodeId) -> None:
        """Forget what a worker refused: its load has changed."""
        for profile in list(self._reasons):
            self._forget(profile, worker)

    def due(self, now: float) -> bool:
        """Forget old refusals; return whether there were any."""
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
