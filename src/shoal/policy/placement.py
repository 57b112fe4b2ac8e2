"""Choose workers for tasks, and say why there is none.

The answer depends only on the arguments, not on the order in which the table got its
workers: two schedulers with the same view choose the same, and a simulation with the
same seed runs the same way twice.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from shoal.model.ids import NodeId
from shoal.model.resources import Profile
from shoal.policy.explanation import Explanation, Rejected, explain
from shoal.policy.fragmentation import LearnedFgd
from shoal.policy.rankings import Uniform
from shoal.policy.shapes import Need, Shape
from shoal.policy.shortlist import Ranking
from shoal.policy.workers import Taken, WorkerTable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from random import Random

__all__ = ["Explanation", "Placed", "Policy", "Rejected", "explain", "place"]

Policy: TypeAlias = Ranking | LearnedFgd | Uniform
"""Whatever can choose a worker for a task."""


class Placed(msgspec.Struct, frozen=True):
    """The workers chosen, one for each task, and what was booked there for it."""

    takens: tuple[Taken, ...] = ()

    @property
    def nodes(self) -> list[NodeId]:
        """The chosen workers, in the order of choice; one may come several times."""
        return [taken.node for taken in self.takens]


def place(  # noqa: PLR0913 - each of these is a separate wish of the caller
    profile: Profile,
    count: int,
    table: WorkerTable,
    ranking: Policy,
    rng: Random,
    *,
    driver: str = "process",
    rtt_max_us: int | None = None,
    exclude: Collection[NodeId] = (),
    at_most: int | None = None,
) -> Placed:
    """Choose workers for up to `count` tasks and book each task in the table.

    No worker gets more than `at_most` of them. Fewer than `count` means that no
    further worker fits; whoever wants all or nothing gives the bookings back. Of
    equally good workers the one with the smallest node id is chosen.
    """
    shape = Shape(profile, driver, rtt_max_us)
    need, choose = _chooser(shape, count, table, ranking, rng)
    takens: list[Taken] = []
    tally: dict[NodeId, int] = {}
    skip = set(exclude)
    while len(takens) < count and (index := choose(skip)) is not None:
        taken = table.book(index, need)
        takens.append(taken)
        if at_most is not None:
            tally[taken.node] = tally.get(taken.node, 0) + 1
            if tally[taken.node] >= at_most:
                skip.add(taken.node)
    return Placed(tuple(takens))


def _chooser(
    shape: Shape, count: int, table: WorkerTable, ranking: Policy, rng: Random
) -> tuple[Need, Callable[[Collection[NodeId]], int | None]]:
    if isinstance(ranking, LearnedFgd):
        ranking = ranking.see(shape.profile, count)
    if isinstance(ranking, Uniform):
        need = table.need(shape)
        return need, partial(ranking.choose, need, table.grid, rng)
    shortlist = table.shortlist(shape, ranking)
    return shortlist.need, shortlist.best
