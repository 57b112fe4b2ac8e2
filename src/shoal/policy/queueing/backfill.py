"""Conservative backfill: small tasks pass a waiting gang, never at its expense.

Each waiting group, in the order of the queue, is promised the earliest start at which
it fits for all its time. A group further back may start now only where and while no
earlier promise needs the room. Times are in
seconds from now; a task without a time limit never ends.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, final

import msgspec

from shoal.model.ids import NodeId
from shoal.model.resources import (
    WHOLE_GPU_MILLI,
    Allocation,
    Capacity,
    Ledger,
    Profile,
    total,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


class Running(msgspec.Struct, frozen=True):
    """What a task occupies, and when it ends at the latest, if it must end."""

    node: NodeId
    allocation: Allocation
    ends_in_s: float | None = None


class BackfillWish(msgspec.Struct, frozen=True):
    """Tasks that start together, and how long they run at most."""

    profile: Profile
    count: int = 1
    time_limit_s: float | None = None
    alone: bool = False  # each on a worker of its own


class Promise(msgspec.Struct, frozen=True):
    """When a wish comes true, and where: one place for each task."""

    starts_in_s: float
    places: tuple[tuple[NodeId, Allocation], ...]


class Busy(msgspec.Struct, frozen=True):
    """Something occupied from `start_s` until just before `end_s`."""

    start_s: float
    end_s: float
    allocation: Allocation


@final
class BackfillPlan:
    """Reservations, for workers in a fixed order.

    Promises are made one after another and never withdrawn: make them in the order
    of the queue. The price of one grows with what runs and with what was promised
    before, so stop after as many as there is time for.
    """

    def __init__(
        self, workers: Mapping[NodeId, Capacity], running: Sequence[Running]
    ) -> None:
        self._workers = dict(workers)
        self._busy: dict[NodeId, list[Busy]] = {node: [] for node in workers}
        for task in running:
            end_s = inf if task.ends_in_s is None else task.ends_in_s
            self._busy[task.node].append(Busy(0.0, end_s, task.allocation))

    def promise(self, wish: BackfillWish) -> Promise | None:
        """Promise the earliest start that delays no promise made before.

        None if there is none: it would have to wait for something that never ends.
        """
        return next(filter(None, (self._at(s, wish) for s in self._starts())), None)

    def room(self, node: NodeId, start_s: float, end_s: float) -> Ledger:
        """Return what is free on a worker during all of this time."""
        busy = self._busy[node]
        starts = [b.start_s for b in busy if start_s < b.start_s < end_s]
        room = Ledger(self._workers[node])
        for at_s in sorted({start_s, *starts}):  # Only here does room get less.
            taken = total(b.allocation for b in busy if b.start_s <= at_s < b.end_s)
            _shrink(room, taken)
        return room

    def _starts(self) -> Iterator[float]:
        ends = {busy.end_s for all_ in self._busy.values() for busy in all_}
        yield from sorted({0.0, *ends} - {inf})

    def _at(self, start_s: float, wish: BackfillWish) -> Promise | None:
        end_s = inf if wish.time_limit_s is None else start_s + wish.time_limit_s
        places: list[tuple[NodeId, Allocation]] = []
        for node in self._workers:
            room = self.room(node, start_s, end_s)
            while len(places) < wish.count:
                found = room.fit(wish.profile)
                if isinstance(found, str):
                    break
                room.take(found)
                places.append((node, found))
                if wish.alone:
                    break
        if len(places) < wish.count:
            return None
        for node, allocation in places:
            self._busy[node].append(Busy(start_s, end_s, allocation))
        return Promise(start_s, tuple(places))


def _shrink(room: Ledger, taken: Allocation) -> None:
    """Leave in `room` no more than what remains of the worker besides `taken`."""
    capacity = room.capacity
    room.cpu_milli = min(room.cpu_milli, capacity.cpu_milli - taken.cpu_milli)
    room.memory_bytes = min(
        room.memory_bytes, capacity.memory_bytes - taken.memory_bytes
    )
    room.disk_bytes = min(room.disk_bytes, capacity.disk_bytes - taken.disk_bytes)
    memory = {device.id: device.memory_bytes for device in capacity.devices}
    for share in taken.shares:
        id_ = share.device
        room.milli[id_] = min(room.milli[id_], WHOLE_GPU_MILLI - share.milli)
        left = memory[id_] - share.memory_bytes
        room.gpu_memory[id_] = min(room.gpu_memory[id_], left)
