"""Choose workers to ask by what gossip says of their free room, nearest first."""

from __future__ import annotations

from heapq import nsmallest
from typing import TYPE_CHECKING, Final, final

from shoal.model.resources import WHOLE_GPU_MILLI

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping

    from shoal.model.ids import NodeId
    from shoal.model.resources import Profile
    from shoal.protocol.messages import Rumour

ASKED_MAX: Final = 16
"""Workers asked at one time, for one profile."""

ASK_PAUSE_S: Final = 0.2
"""Between two searches, since every change of load may call for one."""

ASK_AGAIN_S: Final = 5.0
"""A worker that was asked is not asked again so soon: it answered, or is gone."""


@final
class GossipCandidates:
    """Chooses workers to ask for an inventory from the rumours heard."""

    def __init__(
        self,
        node: NodeId,
        known: Mapping[NodeId, Rumour],
        cost: Callable[[NodeId], int],
    ) -> None:
        """Read rumours from `known`; `cost` returns the path cost to a worker."""
        self._node = node
        self._known = known
        self._cost = cost
        self._asked: dict[NodeId, float] = {}  # until when each is left alone
        self._rests_until = float("-inf")

    def names_others(self, profile: Profile, seen: Container[NodeId]) -> bool:
        """Whether gossip names a worker that is not in `seen` and may have room."""
        return any(
            rumour.node not in seen and _may_hold(rumour, profile)
            for rumour in self._known.values()
        )

    def whom_to_ask(
        self, unmet: Mapping[Profile, int], seen: Container[NodeId], now: float
    ) -> list[NodeId]:
        """Return workers that may have room for unmet demand, and mark them as asked.

        Workers in `seen` report to us directly, so they are not asked.
        """
        if not unmet or not self._known or now < self._rests_until:
            return []
        self._rests_until = now + ASK_PAUSE_S
        self._asked = {
            node: until for node, until in self._asked.items() if until > now
        }
        chosen: dict[NodeId, None] = {}
        for profile, count in unmet.items():
            fitting = [
                (self._cost(rumour.node), rumour.node)
                for rumour in self._known.values()
                if rumour.node not in seen
                and rumour.node not in self._asked
                and _may_hold(rumour, profile)
            ]
            for _, node in nsmallest(min(count, ASKED_MAX), fitting):
                chosen[node] = None
        self._asked.update(dict.fromkeys(chosen, now + ASK_AGAIN_S))
        return list(chosen)


def _may_hold(rumour: Rumour, profile: Profile) -> bool:
    """Whether a task might fit, judged by a rumour alone."""
    if (
        rumour.draining
        or rumour.cpu_milli < profile.cpu_milli
        or rumour.memory_bytes < profile.memory_bytes
    ):
        return False
    gpu = profile.gpu
    if gpu is None:
        return True
    if gpu.memory_min_bytes > rumour.gpu_memory_bytes:
        return False
    if gpu.milli < WHOLE_GPU_MILLI:
        return gpu.milli <= rumour.gpu_milli
    return gpu.count <= rumour.gpus
