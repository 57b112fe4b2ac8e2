"""The worker table: every worker a scheduler knows, laid out for quick decisions.

The table is soft state, and peers fill it: what they claim to be free is cut down to
what they claim to have.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, final

import msgspec

from shoal.model.ids import NodeId
from shoal.model.resources import Allocation, Capacity, Profile
from shoal.policy.ranking.cache_affinity import WarmRows
from shoal.policy.ranking.ranking import Ranking
from shoal.policy.table.domains import path_of
from shoal.policy.table.fitting_rows import FittingRows, FittingTables
from shoal.policy.table.gang_room import GangRoom, GangRooms
from shoal.policy.table.grid import Grid
from shoal.policy.table.link_load import LinkLoad
from shoal.policy.table.rows import WorkerRow
from shoal.policy.table.shortlist import Shortlist, Shortlists
from shoal.policy.table.task_shapes import KINDS_MAX, Kinds, Need, TaskShape
from shoal.policy.worker_view import WorkerView, view_of

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable, Sequence

__all__ = ["TakenRoom", "WorkerTable", "WorkerView"]


class TakenRoom(msgspec.Struct, frozen=True, gc=False):
    """One task's booking in a table, to be given back once."""

    node: NodeId
    booking: int
    allocation: Allocation
    row: int  # of the node, as long as the row still has the booking
    devices: tuple[str, ...] = ()  # that a policy asked for by name


@final
class WorkerTable:
    """Workers by node: what they have, what is free, and what was booked since.

    A report of a worker's load replaces all bookings made on it before: what they
    were for is in the report, or the worker will refuse it.
    """

    def __init__(self) -> None:
        self.grid = Grid()
        self.warm = WarmRows()
        self.links = LinkLoad()
        self._index: dict[NodeId, int] = {}
        self._kinds = Kinds()
        self._shortlists = Shortlists(self.grid, self._kinds)
        self._gang_rooms = GangRooms(self.grid, self._kinds, self.links)
        self._fitting = FittingTables(self.grid, self._kinds)
        self._booked = 0  # bookings so far; each has a number of its own

    def __contains__(self, node: object) -> bool:
        return node in self._index

    def __len__(self) -> int:
        return len(self._index)

    def nodes(self) -> list[NodeId]:
        """Return all nodes, sorted."""
        return [self.row(index).node for index in self.grid.order().tolist()]

    def put(self, view: WorkerView) -> None:
        """Add a worker, or replace what is known about it."""
        if len(self._kinds) > KINDS_MAX:
            self._number_kinds_anew()
        row = WorkerRow(view.node, _with_distinct_devices(view.capacity), self._kinds)
        row.drivers = view.drivers
        row.warm = view.warm
        row.terms, row.weaker = view.terms, view.weaker
        row.draining = view.draining
        row.path_cost_us = view.path_cost_us
        row.site, row.narrow = view.site, view.narrow
        row.set_free(view.cpu_milli, view.memory_bytes, view.disk_bytes, view.active)
        row.set_gpus(view.gpu_milli, view.gpu_memory)
        index = self._index.get(view.node)
        if index is None:
            index = self._index[view.node] = self.grid.add(row)
        else:
            self.warm.remove(view.node, index, self.row(index).warm)
            self.grid.replace(index, row)
        self.warm.put(view.node, index, view.warm)
        self.links.place(view.node, path_of(row))

    def remove(self, node: NodeId) -> None:
        """Forget a worker, if it is known."""
        index = self._index.pop(node, None)
        if index is not None:
            self.warm.remove(node, index, self.row(index).warm)
            self.grid.remove(index)
            self.links.forget(node)

    def view(self, node: NodeId) -> WorkerView | None:
        """Return what is known of a worker, bookings included."""
        index = self._index.get(node)
        return None if index is None else view_of(self.row(index))

    def slots_if_idle(self, node: NodeId, shape: TaskShape, most: int) -> int:
        """Return how many tasks, up to `most`, a worker could hold if nothing ran."""
        index = self._index.get(node)
        if index is None:
            return 0
        return self.row(index).slots_if_idle(shape, most)

    def indices(self, nodes: Collection[NodeId]) -> list[int]:
        """Return the rows of the nodes that are known."""
        index = self._index
        return [index[node] for node in nodes if node in index]

    def is_booked(self, node: NodeId) -> bool:
        """Whether something was booked on a known worker since its last report."""
        return bool(self.row(self._index[node]).bookings)

    def set_load(
        self,
        node: NodeId,
        cpu_milli: int = 0,
        memory_bytes: int = 0,
        disk_bytes: int = 0,
        gpu_milli: Sequence[int] = (),
        gpu_memory: Sequence[int] = (),
        active: int = 0,
        *,
        draining: bool = False,
    ) -> None:
        """Take over what a worker reports as free; void if the worker is unknown.

        Bookings made on it before are void, too: giving them back changes nothing.
        """
        index = self._index.get(node)
        if index is None:
            return
        row = self.row(index)
        row.bookings.clear()
        row.draining = draining
        row.set_free(cpu_milli, memory_bytes, disk_bytes, active)
        if row.ids:
            row.set_gpus(gpu_milli, gpu_memory)
        self.grid.note(index)

    def set_path_cost(self, node: NodeId, us: int) -> None:
        """Take over how far away a worker is; void if the worker is unknown."""
        index = self._index.get(node)
        if index is None:
            return
        row = self.row(index)
        row.path_cost_us = us
        self.grid.note(index)
        self.links.place(node, path_of(row))

    def set_site(self, node: NodeId, site: str, narrow: float = 0.0) -> None:
        """Take over which site a worker was measured to be in; void if unknown.

        `narrow` tells how much longer it takes to talk to others than within the site.
        """
        index = self._index.get(node)
        if index is None:
            return
        row = self.row(index)
        if (row.site, row.narrow) != (site, narrow):
            row.site, row.narrow = site, narrow
            self.grid.note(index)
            self.links.place(node, path_of(row))

    def take(self, node: NodeId, profile: Profile) -> TakenRoom:
        """Book one task on a known worker, on the devices that it would choose."""
        return self.book(self._index[node], Need(TaskShape(profile), self._kinds))

    def give(self, taken: TakenRoom) -> None:
        """Undo a booking; void the second time, or if a report came in between."""
        row = self.grid.rows[taken.row]
        if row is not None and taken.booking in row.bookings:
            del row.bookings[taken.booking]
            row.free(taken.allocation)
            self.grid.gained(taken.row, row)

    @contextmanager
    def freed(self, rooms: Iterable[TakenRoom]) -> Generator[None]:
        """Count rooms as free for the moment, though their workers report them taken.

        A room that is free already is left out.
        """
        given: list[tuple[int, WorkerRow, Allocation]] = []
        for each in rooms:
            row = self.grid.rows[each.row]
            if row is not None and row.node == each.node and row.has(each.allocation):
                row.free(each.allocation)
                self.grid.gained(each.row, row)
                given.append((each.row, row, each.allocation))
        try:
            yield
        finally:
            for index, row, allocation in reversed(given):
                row.occupy(allocation)
                self.grid.lost(index, row)

    def book(self, index: int, need: Need, places: Sequence[int] = ()) -> TakenRoom:
        """Book one task where it fits, on these devices of the worker if given."""
        row = self.grid.rows[index]
        assert row is not None
        allocation = row.book(need, places)
        named = [share.device for share in allocation.shares] if places else ()
        self._booked = number = self._booked + 1
        row.bookings[number] = None
        self.grid.lost(index, row)
        return TakenRoom(row.node, number, allocation, index, tuple(named))

    def row(self, index: int) -> WorkerRow:
        """Return the row of this index, which is in use."""
        row = self.grid.rows[index]
        assert row is not None
        return row

    def need(self, shape: TaskShape) -> Need:
        """Lay out a shape for the workers of this table."""
        return Need(shape, self._kinds)

    def fitting(self, shape: TaskShape) -> FittingRows:
        """Return the workers that fit a shape, to draw from."""
        return self._fitting.get(shape)

    def shortlist(self, shape: TaskShape, ranking: Ranking) -> Shortlist:
        """Return the workers that fit a shape, best first."""
        return self._shortlists.get(shape, ranking)

    def gang_room(self, shape: TaskShape) -> GangRoom:
        """Return the room for gangs of this shape, by network domain."""
        return self._gang_rooms.get(shape)

    def _number_kinds_anew(self) -> None:
        """Forget kinds of devices that no worker has any more."""
        self._kinds = Kinds()
        self._shortlists = Shortlists(self.grid, self._kinds)
        self._gang_rooms = GangRooms(self.grid, self._kinds, self.links)
        self._fitting = FittingTables(self.grid, self._kinds)
        for index in self.grid.order().tolist():
            row = self.row(index)
            row.set_kinds(self._kinds)
            self.grid.replace(index, row)


def _with_distinct_devices(capacity: Capacity) -> Capacity:
    """Keep the last of devices with the same id: a ledger needs distinct ids."""
    devices = {device.id: device for device in capacity.devices}
    if len(devices) == len(capacity.devices):
        return capacity
    return msgspec.structs.replace(capacity, devices=tuple(devices.values()))
