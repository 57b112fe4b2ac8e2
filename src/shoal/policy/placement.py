"""Choose workers for tasks, and say why there is none.

The answer depends only on the arguments, not on the order in which the table got its
workers: two schedulers with the same view choose the same, and a simulation with the
same seed runs the same way twice.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from shoal.model.ids import NodeId
from shoal.model.resources import Profile
from shoal.policy.custom import Breach, Custom
from shoal.policy.explanation import Explanation, Rejected, explain
from shoal.policy.forage import LearnedForage
from shoal.policy.fragmentation import LearnedFgd
from shoal.policy.packing import GpuClustering
from shoal.policy.rankings import Uniform
from shoal.policy.sampling import Sampled
from shoal.policy.shapes import Need, Shape
from shoal.policy.shortlist import Ranking
from shoal.policy.warmth import WarmFirst
from shoal.policy.workers import Taken, WorkerTable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from random import Random

__all__ = ["Explanation", "Placed", "Policy", "Rejected", "explain", "place"]

Policy: TypeAlias = Ranking | LearnedFgd | LearnedForage | Sampled | Uniform | Custom
"""Whatever can choose a worker for a task."""

Chosen: TypeAlias = int | Breach | str | None
"""The index of a row; or a broken promise; or why there is none, if that is known."""

Choose: TypeAlias = "Callable[[Collection[NodeId]], Chosen]"
"""Chooses a row whose node is not among those given."""


UNLISTED: Final = (LearnedFgd, LearnedForage, Sampled, Uniform, Custom, GpuClustering)
"""Whatever chooses by more than a ranking that stays the same."""


class Placed(msgspec.Struct, frozen=True, gc=False):
    """The workers chosen, one for each task, and what was booked there for it.

    A policy of a user may add why it chose no more, or it broke a promise: the
    tasks that it did not place wait, and `explain` has the reasons of each worker.
    """

    takens: tuple[Taken, ...] = ()
    reason: str = ""
    breach: Breach | None = None

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
    warm: Collection[str] = (),
) -> Placed:
    """Choose workers for up to `count` tasks and book each task in the table.

    No worker gets more than `at_most` of them. Fewer than `count` means that no
    further worker fits; whoever wants all or nothing gives the bookings back. Workers
    with any of the marks `warm` win over those that are as good by what a ranking
    compares first; of equally good ones the smallest node id is chosen.
    """
    shape = Shape(profile, driver, rtt_max_us)
    need, choose = _chooser(shape, count, table, ranking, rng, warm)
    takens: list[Taken] = []
    tally: dict[NodeId, int] = {}
    skip = set(exclude)
    while len(takens) < count:
        chosen = choose(skip)
        if not isinstance(chosen, int):
            return _stopped(takens, chosen, ranking)
        taken = table.book(chosen, need)
        takens.append(taken)
        if at_most is not None:
            tally[taken.node] = tally.get(taken.node, 0) + 1
            if tally[taken.node] >= at_most:
                skip.add(taken.node)
    return Placed(tuple(takens))


def _stopped(
    takens: list[Taken], chosen: Breach | str | None, ranking: Policy
) -> Placed:
    match chosen:
        case None:
            return Placed(tuple(takens))
        case str():
            return Placed(tuple(takens), chosen)
        case Breach():
            because = f"policy {ranking.name} broke a promise: {chosen.how}"
            return Placed(tuple(takens), because, chosen)


def _chooser(
    shape: Shape,
    count: int,
    table: WorkerTable,
    ranking: Policy,
    rng: Random,
    warm: Collection[str],
) -> tuple[Need, Choose]:
    if isinstance(ranking, UNLISTED):
        if not isinstance(ranking, LearnedFgd | LearnedForage):
            return _chooser_without_list(shape, count, table, ranking, rng)
        ranking = ranking.see(shape.profile, count)
    shortlist = table.shortlist(shape, ranking)
    need, best = shortlist.need, shortlist.best
    if not warm or not (rows := table.warm.of(warm)):
        return need, best
    return need, WarmFirst(best, ranking, need, table.grid.rows, rows, warm)


def _chooser_without_list(
    shape: Shape,
    count: int,
    table: WorkerTable,
    policy: Sampled | Uniform | Custom | GpuClustering,
    rng: Random,
) -> tuple[Need, Choose]:
    match policy:
        case Sampled():
            need = policy.known(table.need(shape))
            inner = policy.ranking(shape.profile, count)
            return need, partial(policy.choose, inner, need, table.grid, rng)
        case Uniform():
            need = table.need(shape)
            return need, partial(policy.choose, need, table.grid, rng)
        case Custom():
            need = table.need(shape)
            return need, partial(policy.choose, need, table.grid)
        case GpuClustering():
            policy.turn_to(table.grid)
            shortlist = table.shortlist(shape, policy)
            return shortlist.need, partial(policy.choose, shortlist, table.grid)
