"""A worker as a scheduler sees it: the value that users' policies look at."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from shoal.model.ids import NodeId
from shoal.model.resources import (
    WHOLE_GPU_MILLI,
    Allocation,
    Capacity,
    DeviceShare,
    Ledger,
    Profile,
    total,
)
from shoal.policy.table.rows import WorkerRow
from shoal.policy.table.task_shapes import TaskShape

if TYPE_CHECKING:
    from collections.abc import Iterable


class WorkerView(msgspec.Struct, frozen=True, kw_only=True):
    """What a scheduler knows about one worker, free amounts included."""

    node: NodeId
    capacity: Capacity = Capacity()
    cpu_milli: int = 0
    memory_bytes: int = 0
    disk_bytes: int = 0
    gpu_milli: tuple[int, ...] = ()  # free share of each of its devices, in order
    gpu_memory: tuple[int, ...] = ()  # free bytes of each
    active: int = 0
    drivers: tuple[str, ...] = ("process",)
    draining: bool = False
    path_cost_us: int = 0  # 0: this node itself
    site: str = ""  # of nodes that were measured to be near each other, if known
    narrow: float = 0.0  # how much longer talk takes to others than in it, if known
    warm: tuple[str, ...] = ()  # marks of what is cached there (`model.caches`)
    terms: str = ""  # why this scheduler is not offered all
    weaker: tuple[str, ...] = ()  # promises that do not hold in full there

    @classmethod
    def idle(
        cls,
        node: NodeId,
        capacity: Capacity,
        *,
        drivers: tuple[str, ...] = ("process",),
        path_cost_us: int = 0,
    ) -> WorkerView:
        """Return the view of a worker on which everything is free."""
        return cls(
            node=node,
            capacity=capacity,
            cpu_milli=capacity.cpu_milli,
            memory_bytes=capacity.memory_bytes,
            disk_bytes=capacity.disk_bytes,
            gpu_milli=(WHOLE_GPU_MILLI,) * len(capacity.devices),
            gpu_memory=tuple(device.memory_bytes for device in capacity.devices),
            drivers=drivers,
            path_cost_us=path_cost_us,
        )

    @property
    def id(self) -> NodeId:
        """The name to give in an assignment."""
        return self.node

    @property
    def free_gpus(self) -> int:
        """How many devices are wholly free."""
        return self.gpu_milli.count(WHOLE_GPU_MILLI)

    @property
    def ledger(self) -> Ledger:
        """A ledger of its own with what is free here."""
        ledger = Ledger(self.capacity)
        ledger.cpu_milli = self.cpu_milli
        ledger.memory_bytes = self.memory_bytes
        ledger.disk_bytes = self.disk_bytes
        for place, device in enumerate(self.capacity.devices):
            ledger.milli[device.id] = self.gpu_milli[place]
            ledger.gpu_memory[device.id] = self.gpu_memory[place]
        return ledger

    @property
    def used(self) -> Allocation:
        """What is not free here."""
        return Allocation(
            self.capacity.cpu_milli - self.cpu_milli,
            self.capacity.memory_bytes - self.memory_bytes,
            self.capacity.disk_bytes - self.disk_bytes,
            tuple(
                DeviceShare(
                    device.id,
                    WHOLE_GPU_MILLI - self.gpu_milli[place],
                    device.memory_bytes - self.gpu_memory[place],
                )
                for place, device in enumerate(self.capacity.devices)
                if self.gpu_milli[place] < WHOLE_GPU_MILLI
                or self.gpu_memory[place] < device.memory_bytes
            ),
        )

    def without(self, allocations: Iterable[Allocation]) -> WorkerView:
        """Return the worker as it would be if these were free again."""
        own, freed = self.capacity, total(allocations)
        shares = {share.device: share for share in freed.shares}
        milli = list(self.gpu_milli)
        memory = list(self.gpu_memory)
        for place, device in enumerate(own.devices):
            if share := shares.get(device.id):
                milli[place] = min(WHOLE_GPU_MILLI, milli[place] + share.milli)
                most = device.memory_bytes
                memory[place] = min(most, memory[place] + share.memory_bytes)
        return msgspec.structs.replace(
            self,
            cpu_milli=min(own.cpu_milli, self.cpu_milli + freed.cpu_milli),
            memory_bytes=min(own.memory_bytes, self.memory_bytes + freed.memory_bytes),
            disk_bytes=min(own.disk_bytes, self.disk_bytes + freed.disk_bytes),
            gpu_milli=tuple(milli),
            gpu_memory=tuple(memory),
        )

    def fits(self, task: TaskShape | Profile) -> bool:
        """Tell whether a task has room here, now."""
        return self.fit(task) is not None

    def pick_gpus(self, task: TaskShape | Profile) -> tuple[str, ...]:
        """Return the ids of the devices a task would get; none if it does not fit."""
        found = self.fit(task)
        return tuple(share.device for share in found.shares) if found else ()

    def fit(self, task: TaskShape | Profile) -> Allocation | None:
        """Return what a task would occupy, if it can run here now."""
        shape = task if isinstance(task, TaskShape) else TaskShape(task)
        most_us = shape.rtt_max_us
        if self.draining or shape.driver not in self.drivers:
            return None
        if shape.nodes and self.node not in shape.nodes:
            return None
        if most_us is not None and self.path_cost_us > most_us:
            return None
        found = self.ledger.fit(shape.profile)
        return None if isinstance(found, str) else found


def view_of(row: WorkerRow) -> WorkerView:
    """Return what a row of a table says about its worker."""
    places = [row.places[device.id] for device in row.capacity.devices]
    return WorkerView(
        node=row.node,
        capacity=row.capacity,
        cpu_milli=row.cpu_milli,
        memory_bytes=row.memory_bytes,
        disk_bytes=row.disk_bytes,
        gpu_milli=tuple(row.gpu_free[place] for place in places),
        gpu_memory=tuple(row.gpu_memory_free[place] for place in places),
        active=row.active,
        drivers=row.drivers,
        draining=row.draining,
        path_cost_us=row.path_cost_us,
        site=row.site,
        narrow=row.narrow,
        warm=row.warm,
        terms=row.terms,
        weaker=row.weaker,
    )
