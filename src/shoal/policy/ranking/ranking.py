"""Rankings: policies that take the worker with the smallest key.

`Ranking` is the base of most policies: a subclass has a name and `key`, and its
choices come from a sorted shortlist that the table keeps and repairs. `RankedPolicy`
is for policies that pick a ranking for each request, for example by learning which
tasks are typical.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from shoal.policy.ranking.cache_affinity import WarmFirst

if TYPE_CHECKING:
    from shoal.model.resources import Profile
    from shoal.policy.interface import Chooser, PlacementRequest
    from shoal.policy.table.rows import Floats, Ints, RowRoom
    from shoal.policy.table.shortlist import Key, WhenFuller
    from shoal.policy.table.task_shapes import Need
    from shoal.policy.table.worker_table import WorkerTable


class RankedPolicy(ABC):
    """A policy that places the tasks of each request by some ranking."""

    name: str

    @abstractmethod
    def ranking_for(self, profile: Profile, count: int) -> Ranking:
        """Return the ranking for `count` tasks; a policy that learns counts them."""

    def chooser(self, request: PlacementRequest, table: WorkerTable) -> Chooser:
        """Choose from the table's shortlist; among equals prefer warm workers."""
        shape = request.shape
        ranking = self.ranking_for(shape.profile, request.count)
        shortlist = table.shortlist(shape, ranking)
        if not request.warm or not (rows := table.warm.of(request.warm)):
            return shortlist
        return WarmFirst(shortlist, ranking, table.grid.rows, rows, request.warm)


class Ranking(RankedPolicy):
    """Says which of the workers that fit a task suits it best.

    `when_fuller` tells what happens to a worker's key when a task is booked there:
    "worse" means it never gets smaller, "better" that it never gets larger. For a
    worker with devices of several kinds it may be wrong.

    With `by_state` the key of a worker depends only on the worker's `state`, and is
    looked up by it.
    """

    when_fuller: WhenFuller
    by_state = False

    @abstractmethod
    def key(self, need: Need, room: RowRoom) -> Key:
        """Return numbers to compare workers by, in order; the smallest wins.

        `room` is one worker, or columns of all workers: use arithmetic that does both.
        """

    def concern(self, key: Key) -> float | Ints | Floats:
        """Return the part of a key that a warm worker may not be worse in."""
        return key[0]

    def ranking_for(self, profile: Profile, count: int) -> Ranking:
        """Return itself."""
        return self
