"""Keeping room for a gang that waits, so that a stream of small tasks cannot starve it.

When a gang cannot start, the workers that could hold it are reserved: what comes
after it in the queue stays off them, unless it is sure to end before the gang could
start anyway. Nothing is reserved for a gang that the known workers could never hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.model.ids import GroupId, NodeId
from shoal.model.resources import Ledger

if TYPE_CHECKING:
    from collections.abc import Collection

    from shoal.core.holdings import Holdings, Shape
    from shoal.core.jobs import GroupRecord, JobBook
    from shoal.core.views import Views

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
        slots = self._enough_slots(shape, least)
        workers = list(dict.fromkeys(slots))
        self.current = None
        if workers:
            self.current = Reservation(
                group.id,
                shape.priority,
                group.waiting_since,
                frozenset(workers),
                self._free_at(workers, now),
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

    def _enough_slots(self, shape: Shape, least: int) -> list[NodeId]:
        """Return slots for the whole gang on workers as if idle, or none at all."""
        nodes = self._views.table.nodes()[:WORKERS_CONSIDERED_MAX]
        slots = {node: self._slots(node, shape, least) for node in nodes}
        chosen: list[NodeId] = []
        for node in sorted(nodes, key=lambda node: (-slots[node], node)):
            chosen += [node] * min(slots[node], least - len(chosen))
        return chosen if len(chosen) == least else []

    def _slots(self, node: NodeId, shape: Shape, most: int) -> int:
        view = self._views.table.view(node)
        if view is None or view.draining or shape.driver not in view.drivers:
            return 0
        return Ledger(view.capacity).use_up(shape.profile, most)

    def _free_at(self, workers: list[NodeId], now: float) -> float | None:
        """Return when all our tasks on these workers have ended, if that is known."""
        latest = now
        for worker in workers:
            for holding in self._holdings.all_at(worker):
                run = self._book.runs.get(holding.attempt) if holding.attempt else None
                if run is None:
                    continue
                task = self._book.tasks[run.task].task
                if task.time_limit_s is None:
                    return None
                latest = max(latest, run.since + task.time_limit_s)
        return latest
