"""Keeping room for a gang that waits, so that a stream of small tasks cannot starve it.

When a gang cannot start, the workers that could hold it are reserved: what comes
after it in the queue stays off them, unless it is sure to end before the gang could
start anyway. Nothing is reserved for a gang that the known workers could never hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.model.ids import GroupId, NodeId
from shoal.model.resources import Allocation, total
from shoal.policy import leaves
from shoal.policy.backfill import Plan, Running, Wish
from shoal.policy.shapes import Shape as PlacedShape

if TYPE_CHECKING:
    from collections.abc import Collection

    from shoal.core.holdings import Holdings, Shape
    from shoal.core.jobs import GroupRecord, JobBook
    from shoal.core.views import Views
    from shoal.policy.views import WorkerView

WORKERS_CONSIDERED_MAX: Final = 256


class Reservation(msgspec.Struct, frozen=True):
    """The workers kept for one gang, and when it could start there at the earliest."""

    group: GroupId
    priority: int
    waiting_since: float
    workers: frozenset[NodeId]
    starts_at: float | None  # None: something runs there that has no time limit


@final
class Reservations:
    """At most one gang at a time has room kept for it: the first that is stuck."""

    def __init__(self, book: JobBook, views: Views, holdings: Holdings) -> None:
        self.current: Reservation | None = None
        self._book = book
        self._views = views
        self._holdings = holdings

    def reserve(
        self, group: GroupRecord, shape: Shape, least: int, now: float
    ) -> list[NodeId]:
        """Keep room for a gang that could not start, unless another is before it.

        Return the workers kept, each as often as it has slots for the gang.
        """
        if self.current is not None and self.current.group != group.id:
            return []
        candidates = self._candidates(shape, least)
        slots, starts_at = self._promised(group, shape, least, candidates, now)
        self.current = None
        if slots:
            self.current = Reservation(
                group.id,
                shape.priority,
                group.waiting_since,
                frozenset(slots),
                starts_at,
            )
        return slots

    def end(self, group: GroupId) -> None:
        """Keep no more room for a gang: it started, or it is gone."""
        if self.current is not None and self.current.group == group:
            self.current = None

    def barred(
        self, group: GroupRecord, priority: int, now: float
    ) -> Collection[NodeId]:
        """Return the workers that a group must stay off."""
        kept = self.current
        if kept is None or kept.group == group.id:
            return ()
        first = (-priority, group.waiting_since) < (-kept.priority, kept.waiting_since)
        if first or self._ends_in_time(group, kept, now):
            return ()
        return kept.workers

    def _ends_in_time(self, group: GroupRecord, kept: Reservation, now: float) -> bool:
        limit_s = group.group.tasks[0].time_limit_s
        if limit_s is None or kept.starts_at is None:
            return False
        return now + limit_s + group.group.tasks[0].grace_s <= kept.starts_at

    def _candidates(self, shape: Shape, least: int) -> list[NodeId]:
        """Return workers, each as often as it could hold a task if it were idle.

        About twice as many as are needed, the largest first; none if too few.
        """
        table = self._views.table
        nodes = table.nodes()[:WORKERS_CONSIDERED_MAX]
        asked = PlacedShape(shape.profile, shape.driver)
        slots = {node: table.slots_if_idle(node, asked, least) for node in nodes}
        if shape.same_leaf == "require":
            nodes = self._under_one_leaf(slots, least)
        chosen: list[NodeId] = []
        for node in sorted(nodes, key=lambda node: (-slots[node], node)):
            if len(chosen) >= 2 * least:
                break
            chosen += [node] * slots[node]
        return chosen if len(chosen) >= least else []

    def _under_one_leaf(self, slots: dict[NodeId, int], least: int) -> list[NodeId]:
        """Return the workers of the smallest leaf that could hold a gang if idle."""
        found: list[tuple[int, list[NodeId]]] = []
        for nodes in leaves.leaves(self._views.table).values():
            room = sum(slots.get(node, 0) for node in nodes)
            if room >= least:
                found.append((room, [node for node in nodes if node in slots]))
        return min(found, key=lambda leaf: leaf[0])[1] if found else []

    def _promised(
        self,
        group: GroupRecord,
        shape: Shape,
        least: int,
        candidates: list[NodeId],
        now: float,
    ) -> tuple[list[NodeId], float | None]:
        """Return where the gang can start first, and when, as far as we know.

        What others run there, and our tasks without a time limit, may never end; if
        it would have to wait for those, it waits where it could be held if idle.
        """
        workers = list(dict.fromkeys(candidates))
        views = [v for n in workers if (v := self._views.table.view(n)) is not None]
        plan = Plan(
            {view.node: view.capacity for view in views},
            [running for view in views for running in self._running(view, now)],
        )
        limit_s = group.group.tasks[0].time_limit_s
        promise = plan.promise(Wish(shape.profile, least, limit_s))
        if promise is None:
            return candidates[:least], None
        return [node for node, _ in promise.places], now + promise.starts_in_s

    def _running(self, view: WorkerView, now: float) -> list[Running]:
        """Return what occupies a worker: our tasks with their ends, and the rest.

        What a worker says of our tasks counts only as far as it agrees with what it
        says of itself.
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
