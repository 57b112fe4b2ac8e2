"""Place tasks on workers: ask a policy for one worker after another, and book them.

The answer depends only on the arguments, not on the order in which the table got its
workers. Two schedulers with the same view choose the same workers, and a simulation
with the same seed runs the same way twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from shoal.model.ids import NodeId
from shoal.model.resources import Profile
from shoal.policy.interface import Breach, OnDevices, PlacementRequest
from shoal.policy.table.task_shapes import TaskShape
from shoal.policy.table.worker_table import TakenRoom, WorkerTable

if TYPE_CHECKING:
    from collections.abc import Collection
    from random import Random

    from shoal.policy.interface import GangNeed, Policy


class Placed(msgspec.Struct, frozen=True, gc=False):
    """The workers chosen, one for each task, and what was booked there for it.

    A user's policy may say why it chose no more, or it broke a promise. The tasks
    that it did not place wait, and `explain` has each worker's reason.
    """

    takens: tuple[TakenRoom, ...] = ()
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
    policy: Policy,
    rng: Random,
    *,
    driver: str = "process",
    rtt_max_us: int | None = None,
    nodes: tuple[NodeId, ...] = (),
    alone: bool = False,
    exclude: Collection[NodeId] = (),
    at_most: int | None = None,
    warm: Collection[str] = (),
    gang: GangNeed | None = None,
) -> Placed:
    """Choose workers for up to `count` tasks and book each task in the table.

    No worker gets more than `at_most` of them, and one if each must be `alone`. Fewer
    than `count` means that no further worker fits; a caller that wants all or nothing
    gives the bookings back.
    Workers with any of the marks `warm` win over workers that are as good by the first
    number of a ranking's key; of equally good workers the smallest node id is chosen.
    """
    shape = TaskShape(profile, driver, rtt_max_us, nodes, alone)
    at_most = 1 if alone else at_most
    chooser = policy.chooser(PlacementRequest(shape, count, rng, warm, gang), table)
    need, best = chooser.need, chooser.best
    takens: list[TakenRoom] = []
    tally: dict[NodeId, int] = {}
    skip = set(exclude)
    while len(takens) < count:
        chosen = best(skip)
        if isinstance(chosen, int):
            taken = table.book(chosen, need)
        elif isinstance(chosen, OnDevices):
            known = table.row(chosen.row).places
            places = [known[device] for device in chosen.devices]
            taken = table.book(chosen.row, need, places)
        else:
            return _stopped(takens, chosen, policy)
        takens.append(taken)
        if at_most is not None:
            tally[taken.node] = tally.get(taken.node, 0) + 1
            if tally[taken.node] >= at_most:
                skip.add(taken.node)
    return Placed(tuple(takens))


def _stopped(
    takens: list[TakenRoom], chosen: Breach | str | None, policy: Policy
) -> Placed:
    match chosen:
        case None:
            return Placed(tuple(takens))
        case str():
            return Placed(tuple(takens), chosen)
        case Breach():
            because = f"policy {policy.name} broke a promise: {chosen.how}"
            return Placed(tuple(takens), because, chosen)
