"""Reserving room for a waiting gang, so that a stream of small tasks cannot starve it.

Theory of operation. When a gang cannot start, the workers that could hold it are
reserved: groups behind it in the queue stay off them, unless their tasks are sure to
end before the gang could start anyway (backfill). Nothing is reserved for a gang that
the known workers could never hold. One gang at a time has a reservation, the first
that is stuck, until it starts or ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import msgspec

from shoal.model.ids import GroupId, NodeId
from shoal.model.resources import Allocation, total
from shoal.policy.queueing.backfill import BackfillPlan, BackfillWish, Running
from shoal.policy.table.gang_planner import ANYWHERE, LEAF

if TYPE_CHECKING:
    from collections.abc import Collection

    from shoal.core.discovery.worker_views import WorkerViews
    from shoal.core.negotiation.held_leases import HeldLeases, LeaseShape
    from shoal.core.records.records import GroupRecord
    from shoal.core.scheduling.job_book import JobBook
    from shoal.policy.worker_view import WorkerView


class RoomReservation(msgspec.Struct, frozen=True):
    """The workers reserved for a gang, and the earliest time it could start there."""

    group: GroupId
    priority: int
    waiting_since: float
    workers: frozenset[NodeId]
    starts_at: float | None  # None if a task there has no time limit


@final
class Reservations:
    """Keeps the reservation of one gang at a time, the first that is stuck."""

    def __init__(self, book: JobBook, views: WorkerViews, holdings: HeldLeases) -> None:
        self.current: RoomReservation | None = None
        self._way_made: dict[GroupId, None] = {}  # gangs that idle leases gave way to
        self._book = book
        self._views = views
        self._holdings = holdings

    def reserve(
        self, group: GroupRecord, shape: LeaseShape, least: int, now: float
    ) -> list[NodeId]:
        """Reserve room for a gang that cannot start, unless another gang has some.

        Return the workers reserved, each as often as it has slots for the gang.
        """
        if self.current is not None and self.current.group != group.id:
            return []
        candidates = self._candidates(shape, least)
        slots, starts_at = self._promised(group, shape, least, candidates, now)
        self.current = None
        if slots:
            self.current = RoomReservation(
                group.id,
                shape.priority,
                group.waiting_since,
                frozenset(slots),
                starts_at,
            )
        return slots

    def end(self, group: GroupId) -> None:
        """End the reservation of a gang, if it has one."""
        if self.current is not None and self.current.group == group:
            self.current = None

    def forget(self, group: GroupId) -> None:
        """Forget a gang: it started, or it is gone."""
        self.end(group)
        self._way_made.pop(group, None)

    def makes_way(self, gang: GroupId) -> bool:
        """Whether to release idle leases for a gang, which starts on leases of its own.

        Only once: while it waits for others' room, tasks that overtake it should keep
        their leases. On a single node they would win and lose them without end.
        """
        first = gang not in self._way_made
        self._way_made[gang] = None
        return first

    def ahead_of(self, group: GroupId) -> GroupId | None:
        """Return the gang whose reservation keeps this group waiting, if any."""
        kept = self.current
        return None if kept is None or kept.group == group else kept.group

    def barred(
        self, group: GroupRecord, priority: int, now: float
    ) -> Collection[NodeId]:
        """Return the workers reserved for a gang that goes before this group."""
        kept = self.current
        if kept is None or kept.group == group.id:
            return ()
        first = (-priority, group.waiting_since) < (-kept.priority, kept.waiting_since)
        if first or self._ends_in_time(group, kept, now):
            return ()
        return kept.workers

    def _ends_in_time(
        self, group: GroupRecord, kept: RoomReservation, now: float
    ) -> bool:
        limit_s = group.group.tasks[0].time_limit_s
        if limit_s is None or kept.starts_at is None:
            return False
        return now + limit_s + group.group.tasks[0].grace_s <= kept.starts_at

    def _candidates(self, shape: LeaseShape, least: int) -> list[NodeId]:
        """Return workers, each as often as it could hold a task if it were idle.

        They are in one part of the network, as small as it can be. The largest come
        first, and about twice as many as needed; none if too few.
        """
        table = self._views.table
        narrow = LEAF if shape.same_leaf == "require" else ANYWHERE
        room = table.gang_room(shape.asked).to_wait_for(least, narrow)
        nodes = [table.row(index).node for index in room]
        asked = shape.asked
        slots = {node: table.slots_if_idle(node, asked, least) for node in nodes}
        chosen: list[NodeId] = []
        for node in sorted(nodes, key=lambda node: (-slots[node], node)):
            if len(chosen) >= 2 * least:
                break
            chosen += [node] * slots[node]
        return chosen if len(chosen) >= least else []

    def _promised(
        self,
        group: GroupRecord,
        shape: LeaseShape,
        least: int,
        candidates: list[NodeId],
        now: float,
    ) -> tuple[list[NodeId], float | None]:
        """Return where the gang can start first, and when, as far as we know.

        Tasks of others, and ours without a time limit, may never end. If the gang
        depends on those, it gets the first candidates, and no time.
        """
        workers = list(dict.fromkeys(candidates))
        views = [v for n in workers if (v := self._views.table.view(n)) is not None]
        plan = BackfillPlan(
            {view.node: view.capacity for view in views},
            [running for view in views for running in self._running(view, now)],
        )
        limit_s = group.group.tasks[0].time_limit_s
        wish = BackfillWish(shape.profile, least, limit_s, shape.alone)
        promise = plan.promise(wish)
        if promise is None:
            return candidates[:least], None
        return [node for node, _ in promise.places], now + promise.starts_in_s

    def _running(self, view: WorkerView, now: float) -> list[Running]:
        """Return what occupies a worker: our tasks with their ends, and the rest.

        A worker's word on our tasks counts only if it fits its own total.
        """
        ours: list[Running] = []
        known = Allocation()
        for holding in self._holdings.all_at(view.node):
            run = self._book.runs.get(holding.attempt) if holding.attempt else None
            if run is None or not run.started:
                continue
            with_it = total((known, run.allocation))
            if with_it.beyond(view.used) != Allocation():
                continue
            known = with_it
            limit_s = self._book.tasks[run.task].task.time_limit_s
            ends_in_s = None if limit_s is None else max(0.0, run.since + limit_s - now)
            ours.append(Running(view.node, run.allocation, ends_in_s))
        return [*ours, Running(view.node, view.used.beyond(known))]
