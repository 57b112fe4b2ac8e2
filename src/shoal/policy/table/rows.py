"""One worker as a row of the table, in plain integers.

A decision looks at few rows, where Python's integers are quicker than numpy's; a new
shape looks at all of them, where the columns of `grid` are quicker by far. `WorkerRow`
and `Columns` have the same attributes, so that one formula serves both: see `RowRoom`.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from shoal.model.ids import NodeId
from shoal.model.resources import (
    WHOLE_GPU_MILLI,
    Allocation,
    Capacity,
    DeviceShare,
    Ledger,
    Profile,
)
from shoal.policy.table.task_shapes import NEVER, Kinds, Need, TaskShape

if TYPE_CHECKING:
    from collections.abc import Sequence

Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
Floats: TypeAlias = NDArray[np.float64]

IntOrColumn: TypeAlias = int | Ints
"""An integer when it is about one worker, a column of integers when about all."""

NO_KIND: Final = -1

CAPACITIES_MAX: Final = 4_096
"""Capacities of which it is remembered how many tasks of a profile they hold."""


class RowRoom(Protocol):
    """What a ranking may look at, of one worker or of all of them at once.

    Use only arithmetic and comparisons on these, and the same formula gives one
    number for one worker and a column of them for all.
    """

    @property
    def cpu_milli(self) -> IntOrColumn:
        """Free CPU."""
        ...

    @property
    def memory_bytes(self) -> IntOrColumn:
        """Free memory."""
        ...

    @property
    def disk_bytes(self) -> IntOrColumn:
        """Free disk."""
        ...

    @property
    def gpu_milli(self) -> IntOrColumn:
        """Free shares of all devices, added up."""
        ...

    @property
    def gpus_whole(self) -> IntOrColumn:
        """Devices that are wholly free."""
        ...

    @property
    def active(self) -> IntOrColumn:
        """Tasks that run here."""
        ...

    @property
    def path_cost_us(self) -> IntOrColumn:
        """What the path to the worker costs; 0 for this node itself."""
        ...

    @property
    def cpu_milli_all(self) -> IntOrColumn:
        """CPU, free or not."""
        ...

    @property
    def gpu_milli_all(self) -> IntOrColumn:
        """Shares of all devices, free or not."""
        ...

    def gpu_memory_taken(self, need: Need) -> IntOrColumn:
        """Return how much GPU memory a task that fits would occupy."""
        ...


@final
class WorkerRow:
    """What is free on one worker, in Python's integers; devices by their ids."""

    __slots__ = (
        "_all_kinds",
        "_make",
        "active",
        "bookings",
        "capacity",
        "cpu_milli",
        "cpu_milli_all",
        "devices",
        "disk_bytes",
        "draining",
        "drivers",
        "gpu_free",
        "gpu_memory_all",
        "gpu_memory_free",
        "gpu_milli",
        "gpu_milli_all",
        "gpus_whole",
        "ids",
        "kind",
        "kinds",
        "known_state",
        "labels",
        "lacks",
        "lends",
        "memory_bytes",
        "mixed",
        "narrow",
        "node",
        "path_cost_us",
        "places",
        "site",
        "terms",
        "warm",
        "weaker",
    )

    def __init__(self, node: NodeId, capacity: Capacity, kinds: Kinds) -> None:
        ids = sorted(device.id for device in capacity.devices)
        self.node = node
        self.capacity = capacity
        self.labels = frozenset(capacity.labels)
        self.lacks = frozenset(capacity.lacks)
        self.lends = frozenset(capacity.lends)
        self.drivers: tuple[str, ...] = ()
        self.warm: tuple[str, ...] = ()
        self.terms = ""  # why this scheduler is not offered all
        self.weaker: tuple[str, ...] = ()  # promises that do not hold in full
        self.ids = ids
        self.places = {id_: place for place, id_ in enumerate(ids)}
        self.devices = sorted(capacity.devices, key=lambda device: device.id)
        self.known_state = 0  # worked out when first asked for
        self.set_kinds(kinds)
        self.cpu_milli_all = capacity.cpu_milli
        self.gpu_milli_all = WHOLE_GPU_MILLI * len(ids)
        self.cpu_milli = self.memory_bytes = self.disk_bytes = 0
        self.gpu_memory_all = [device.memory_bytes for device in self.devices]
        self.gpu_free = [0] * len(ids)
        self.gpu_memory_free = [0] * len(ids)
        self.gpu_milli = self.gpus_whole = 0
        self.active = self.path_cost_us = 0
        self.site = ""
        self.narrow = 0.0  # how much longer talk takes to others than in its site
        self.draining = False
        # Numbers of the bookings since the worker's last report.
        self.bookings: dict[int, None] = {}

    @property
    def state(self) -> int:
        """Free resources as a number: rows of equal numbers fit the same tasks.

        Except for how far away it is. Workers with the same number are alike, but for
        memory and disk that are more than any task asks for: hardly two workers have
        the same of those.
        """
        kinds = self._all_kinds
        if self.known_state < kinds.states_from:
            # For a task, and for what a ranking may ask about when it is here.
            memory_most = kinds.memory_most + kinds.memory_that_matters(len(self.ids))
            self.known_state = kinds.number_of_state(
                (
                    self.cpu_milli,
                    min(self.memory_bytes, memory_most),
                    min(self.disk_bytes, kinds.disk_most),
                    self.draining,
                    self._make or self._number_make(),
                    *self.gpu_free,
                    *self.gpu_memory_free,
                )
            )
        return self.known_state

    def _number_make(self) -> int:
        """Return a number for what stays the same here, so that a state is short."""
        own = (self.labels, self.lacks, self.lends, self.capacity.longest_s)
        make = (self.drivers, *own, *self.kinds)
        self._make = self._all_kinds.number_of_state(make)
        return self._make

    def set_kinds(self, kinds: Kinds) -> None:
        """Give each device the number of its kind."""
        self._all_kinds = kinds
        self.kinds = [kinds.number(device) for device in self.devices]
        # The kind of all devices when they are alike: most checks get short then.
        alike = len(frozenset(self.kinds)) == 1
        self.kind = self.kinds[0] if alike else NO_KIND
        self.known_state = self._make = 0
        self.mixed = len(self.kinds) > 0 and not alike

    def set_free(self, cpu_milli: int, memory: int, disk: int, active: int) -> None:
        """Take over what is free besides devices, and how many tasks there are."""
        self.cpu_milli = _within(cpu_milli, self.capacity.cpu_milli)
        self.memory_bytes = _within(memory, self.capacity.memory_bytes)
        self.disk_bytes = _within(disk, self.capacity.disk_bytes)
        self.active = active
        self.known_state = 0

    def fits(self, need: Need) -> bool:
        """Tell whether a task fits now: the same answer as all filters together."""
        return (
            need.gpus_whole_min <= self.gpus_whole
            and need.cpu_milli <= self.cpu_milli
            and self.fits_besides(need)
        )

    def fits_besides(self, need: Need) -> bool:
        """Tell whether a task fits, provided that CPU and whole devices would do."""
        if (
            need.memory_bytes > self.memory_bytes
            or need.disk_bytes > self.disk_bytes
            or self.draining
            or need.driver not in self.drivers
            or (need.picky and not self._suits(need))
        ):
            return False
        if need.gpus_min == 0:
            return True
        size = need.sizes[self.kind]
        if size == NEVER:
            return self.mixed and len(self.fitting(need)) >= need.gpus_min
        return need.whole or self._has_shares(need, size)

    def slots(self, need: Need) -> int:
        """Return how many tasks would fit now, beside each other."""
        if not self.fits(need):
            return 0
        most = need.slots_max
        if need.cpu_milli:
            most = min(most, self.cpu_milli // need.cpu_milli)
        if need.memory_bytes:
            most = min(most, self.memory_bytes // need.memory_bytes)
        if need.disk_bytes:
            most = min(most, self.disk_bytes // need.disk_bytes)
        if need.gpus_min == 0:
            return most
        if self.kind == NO_KIND or need.gpus_min < need.gpus_max:
            return self._slots_tried(need, most)
        if need.whole:
            return min(most, self.gpus_whole // need.gpus_min)
        if need.gpus_min > 1:
            return self._slots_tried(need, most)
        size = need.sizes[self.kind] or 1
        shares = zip(self.gpu_free, self.gpu_memory_free, strict=True)
        milli = need.gpu_milli
        return min(most, sum([min(f // milli, m // size) for f, m in shares]))

    def _slots_tried(self, need: Need, most: int) -> int:
        """Count slots by filling them, where it matters which devices are taken."""
        filled: list[Allocation] = []
        while len(filled) < most and self.fits(need):
            filled.append(self.book(need))
        for allocation in reversed(filled):
            self.free(allocation)
        return len(filled)

    def slots_if_idle(self, shape: TaskShape, most: int) -> int:
        """Return how many tasks, up to `most`, would fit if nothing ran here."""
        if self.draining or shape.driver not in self.drivers:
            return 0
        if shape.nodes and self.node not in shape.nodes:
            return 0
        most = min(most, 1) if shape.alone else most
        return _slots_of(self.capacity, shape.profile, most)

    def fits_idle(self, need: Need) -> bool:
        """Tell whether a task would fit if nothing else ran here."""
        capacity = self.capacity
        if (
            need.cpu_milli > capacity.cpu_milli
            or need.memory_bytes > capacity.memory_bytes
            or need.disk_bytes > capacity.disk_bytes
            or self.draining
            or need.driver not in self.drivers
            or (need.picky and not self._suits(need))
        ):
            return False
        return self.gpus_suited(need) >= need.gpus_min

    def gpus_suited(self, need: Need) -> int:
        """Return how many devices would do for a task if they were idle."""
        return sum(need.sizes[kind] != NEVER for kind in self.kinds)

    def gpu_memory_taken(self, need: Need) -> int:
        """Return how much GPU memory a task that fits would occupy."""
        if need.gpu is None:
            return 0
        sizes, kind = need.sizes, self.kind
        if kind == NO_KIND:
            return sum([sizes[self.kinds[place]] for place in self.pick(need)])
        if need.gpus_min == need.gpus_max:
            return need.gpus_min * sizes[kind]
        return min(need.gpus_max, len(self.fitting(need))) * sizes[kind]

    def pick(self, need: Need) -> list[int]:
        """Choose devices, by their places, as the worker itself would."""
        if need.gpus_max == 1 and self.kind != NO_KIND:
            place = self._tightest(need)
            if place is not None:
                return [place]
        fitting = self.fitting(need)
        free, full = self.gpu_free, self.gpu_memory_all
        if self.kind == NO_KIND:
            fitting.sort(key=lambda place: (free[place], full[place]))
        elif not need.whole:
            fitting.sort(key=free.__getitem__)
        return fitting[: need.gpus_max]

    def _tightest(self, need: Need) -> int | None:
        """Return the place of the fullest device with room, unless it lacks memory."""
        shares = sorted(self.gpu_free)
        at = bisect_left(shares, need.gpu_milli)
        if at == len(shares):
            return None
        place = self.gpu_free.index(shares[at])
        enough = self.gpu_memory_free[place] >= need.sizes[self.kind]
        return place if enough else None

    def book(self, need: Need, places: Sequence[int] = ()) -> Allocation:
        """Occupy what a task needs, for which there is room.

        Uses the devices at `places`, or else the ones that the worker would choose.
        """
        shares: tuple[DeviceShare, ...] = ()
        if need.gpu is not None:
            shares = self._occupy(need, places or self.pick(need))
        cpu, memory, disk = need.cpu_milli, need.memory_bytes, need.disk_bytes
        self.cpu_milli -= cpu
        self.memory_bytes -= memory
        self.disk_bytes -= disk
        self.active += 1
        self.known_state = 0
        return Allocation(cpu, memory, disk, shares)

    def free(self, allocation: Allocation) -> None:
        """Undo a booking."""
        self.cpu_milli += allocation.cpu_milli
        self.memory_bytes += allocation.memory_bytes
        self.disk_bytes += allocation.disk_bytes
        self.active -= 1
        self.known_state = 0
        for share in allocation.shares:
            self._change(self.places[share.device], share.milli, share.memory_bytes)

    def has(self, allocation: Allocation) -> bool:
        """Whether so much is taken that an allocation can be part of it."""
        return (
            self.cpu_milli + allocation.cpu_milli <= self.cpu_milli_all
            and self.memory_bytes + allocation.memory_bytes
            <= self.capacity.memory_bytes
            and self.disk_bytes + allocation.disk_bytes <= self.capacity.disk_bytes
            and all(
                (place := self.places.get(share.device)) is not None
                and self.gpu_free[place] + share.milli <= WHOLE_GPU_MILLI
                and self.gpu_memory_free[place] + share.memory_bytes
                <= self.gpu_memory_all[place]
                for share in allocation.shares
            )
        )

    def occupy(self, allocation: Allocation) -> None:
        """Undo `free`."""
        self.cpu_milli -= allocation.cpu_milli
        self.memory_bytes -= allocation.memory_bytes
        self.disk_bytes -= allocation.disk_bytes
        self.active += 1
        self.known_state = 0
        for share in allocation.shares:
            self._change(self.places[share.device], -share.milli, -share.memory_bytes)

    def set_gpus(self, milli: Sequence[int], memory: Sequence[int]) -> None:
        """Take over what is free of each device; what is missing counts as busy."""
        for number, device in enumerate(self.capacity.devices):
            free = milli[number] if number < len(milli) else 0
            room = memory[number] if number < len(memory) else 0
            place = self.places[device.id]
            self.gpu_free[place] = _within(free, WHOLE_GPU_MILLI)
            self.gpu_memory_free[place] = _within(room, device.memory_bytes)
        self.known_state = 0
        self.gpu_milli = sum(self.gpu_free)
        self.gpus_whole = sum(
            share == WHOLE_GPU_MILLI and memory == full
            for share, memory, full in zip(
                self.gpu_free, self.gpu_memory_free, self.gpu_memory_all, strict=True
            )
        )

    def _occupy(self, need: Need, places: Sequence[int]) -> tuple[DeviceShare, ...]:
        milli = need.gpu_milli
        shares: list[DeviceShare] = []
        for place in places:
            size = need.sizes[self.kinds[place]]
            self._change(place, -milli, -size)
            shares.append(DeviceShare(self.ids[place], milli, size))
        return tuple(shares)

    def _change(self, place: int, milli: int, memory_bytes: int) -> None:
        """Add to what is free of one device."""
        free, memory = self.gpu_free[place], self.gpu_memory_free[place]
        if free == WHOLE_GPU_MILLI and memory == self.gpu_memory_all[place]:
            self.gpus_whole -= 1
        self.gpu_free[place] = free = free + milli
        self.gpu_memory_free[place] = memory = memory + memory_bytes
        if free == WHOLE_GPU_MILLI and memory == self.gpu_memory_all[place]:
            self.gpus_whole += 1
        self.gpu_milli += milli

    def _suits(self, need: Need) -> bool:
        most_us = need.rtt_max_us
        near = most_us is None or self.path_cost_us <= most_us
        has_all = need.modules.isdisjoint(self.lacks)
        named = not need.nodes or self.node in need.nodes
        lends = need.uses <= self.lends and self.lasts(need)
        return named and near and has_all and lends and need.labels <= self.labels

    def lasts(self, need: Need) -> bool:
        """Tell whether the worker is there as long as a task may take."""
        most_s = self.capacity.longest_s
        return most_s is None or need.longest_s <= most_s

    def _has_shares(self, need: Need, size: int) -> bool:
        free = self.gpu_free
        most = max(free)
        if most < need.gpu_milli:
            return False
        if need.gpus_min == 1 and self.gpu_memory_free[free.index(most)] >= size:
            return True
        return len(self.fitting(need)) >= need.gpus_min

    def fitting(self, need: Need) -> list[int]:
        """Return the places of devices with room."""
        free, memory, kinds = self.gpu_free, self.gpu_memory_free, self.kinds
        milli, sizes = need.gpu_milli, need.sizes
        return [
            place
            for place, share in enumerate(free)
            if share >= milli and memory[place] >= sizes[kinds[place]]
        ]


@lru_cache(CAPACITIES_MAX)
def _slots_of(capacity: Capacity, profile: Profile, most: int) -> int:
    """Return how many tasks, up to `most`, an idle worker could hold."""
    return Ledger(capacity).use_up(profile, most)


def _within(amount: int, most: int) -> int:
    """Cut down what a peer claims to be free to what it claims to have."""
    return amount if 0 <= amount <= most else min(max(0, amount), most)
