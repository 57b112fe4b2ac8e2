"""Compact: gangs under as few switches as possible, single tasks where least is wasted.

A gang is placed as one, by a plan over the network's domains (`table/gang_room.py`).
Narrow links above a leaf may slow a gang down by more than it would have to wait, and
all others that cross them too. So a gang takes a wider place than it would need in an
idle shoal only if it expects to lose less by it than it has lost by waiting.

Tasks that do not talk still fetch their files, and bring back what they made. So they
stay within the local network if there is room, and else go no further than they must.
There they go where they keep free GPUs usable for others, then to workers in use before
idle ones, and then to the nearest: this node itself, if it is idle.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, final

from shoal.policy.ranking.forage import LearnedForage
from shoal.policy.ranking.gradient import STEPS
from shoal.policy.ranking.ranking import RankedPolicy, Ranking
from shoal.policy.table.domains import LOCAL_US
from shoal.policy.table.gang_room import GangRoom

if TYPE_CHECKING:
    from collections.abc import Collection

    from shoal.model.ids import NodeId
    from shoal.model.resources import Profile
    from shoal.policy.interface import Chooser, Chosen, GangNeed, PlacementRequest
    from shoal.policy.ranking.gradient import Gradient
    from shoal.policy.table.gang_planner import GangPlan
    from shoal.policy.table.rows import Floats, Ints, RowRoom
    from shoal.policy.table.shortlist import Key, WhenFuller
    from shoal.policy.table.task_shapes import Need
    from shoal.policy.table.worker_table import WorkerTable


FAR_US: Final = tuple(LOCAL_US * 8**n for n in range(4))
"""Round trips beyond which a worker is no longer near, and further, and further."""


@final
class CompactGangs(RankedPolicy):
    """Gangs close together in the network, single tasks where least is wasted."""

    name = "compact"

    def __init__(self) -> None:
        self._forage = LearnedForage()
        self._ranking: _LeastWasteNearby | None = None

    def chooser(self, request: PlacementRequest, table: WorkerTable) -> Chooser:
        """Plan a gang as a whole; choose workers for other tasks one by one."""
        if request.gang is None:
            return super().chooser(request, table)
        return _GangChooser(request, request.gang, table)

    def ranking_for(self, profile: Profile, count: int) -> Ranking:
        """Return a ranking for what is typical now."""
        gradient = self._forage.ranking_for(profile, count)
        if self._ranking is None or self._ranking.gradient is not gradient:
            self._ranking = _LeastWasteNearby(gradient)
        return self._ranking


@final
class _LeastWasteNearby(Ranking):
    """No further than need be, least waste of GPUs, the fullest, then the nearest."""

    name = "compact"
    when_fuller: WhenFuller = "unclear"

    def __init__(self, gradient: Gradient) -> None:
        self.gradient = gradient

    def key(self, need: Need, room: RowRoom) -> Key:
        """Compare how far it is and the waste, then free GPUs, then the exact path."""
        waste, cost_us = self.gradient.key(need, room)[0], room.path_cost_us
        far = sum(1 * (cost_us > bound_us) for bound_us in FAR_US)
        return (far * STEPS + waste, room.gpu_milli, cost_us)

    def concern(self, key: Key) -> float | Ints | Floats:
        """Return the waste: what is cached need not be fetched, however far it is."""
        return key[0] % STEPS


@final
class _GangChooser:
    """Hands out the rows of a plan, one task at a time."""

    def __init__(
        self, request: PlacementRequest, gang: GangNeed, table: WorkerTable
    ) -> None:
        self._room: GangRoom = table.gang_room(request.shape)
        self.need = self._room.need
        self._left = request.count
        self._warm = table.warm.of(request.warm)
        self._gang = gang
        self._table = table
        self._plan: GangPlan | None = None

    def best(self, skip: Collection[NodeId], /) -> Chosen:
        """Return the next row of the plan, which is made at the first question."""
        if self._plan is None:
            self._plan = self._make_plan(skip)
            if not self._plan and self._gang.slowdown_max < math.inf:
                return "no part of the network has room for the whole gang yet"
        while self._plan:
            row, tasks = self._plan.pop()
            if self._table.row(row).node in skip:
                continue  # It got as many as one worker may have.
            if tasks > 1:
                self._plan.append((row, tasks - 1))
            return row
        return None

    def _make_plan(self, skip: Collection[NodeId]) -> GangPlan:
        gang, table, room = self._gang, self._table, self._room
        beside = table.indices(gang.beside)
        plan = room.plan(
            self._left,
            table.indices(skip),
            beside,
            warm=self._warm,
            mark=gang.mark,
        )
        if plan and gang.slowdown_max < math.inf:
            rows = [*beside, *(row for row, _ in plan)]
            if room.slowdown(rows, gang.size, gang.mark) > gang.slowdown_max:
                return []
        return plan[::-1]
