"""One worker as a row of a table, in plain integers.

A decision looks at few rows, where Python's integers are quicker than numpy's; a new
shape looks at all of them, where the columns of `grid` are quicker by far. `Row` and
`Columns` have the same attributes, so that one formula serves both: see `Room`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, final

from shoal.model.ids import NodeId
from shoal.model.resources import WHOLE_GPU_MILLI, Allocation, Capacity, DeviceShare
from shoal.policy.shapes import NEVER, Kinds, Need

if TYPE_CHECKING:
    from collections.abc import Sequence

Amount: TypeAlias = Any
"""An integer when it is about one worker, a column of integers when about all."""

NO_KIND: Final = -1


class Room(Protocol):
    """What a ranking may look at, of one worker or of all of them at once.

    Use only arithmetic and comparisons on these, and the same formula gives one
    number for one worker and a column of them for all.
    """

    cpu_milli: Amount
    memory_bytes: Amount
    disk_bytes: Amount
    gpu_milli: Amount  # free shares of all devices, added up
    gpus_whole: Amount  # devices that are wholly free
    active: Amount
    path_cost_us: Amount
    cpu_milli_all: Amount  # free or not
    gpu_milli_all: Amount

    def gpu_memory_taken(self, need: Need) -> Amount:
        """Return how much GPU memory a task that fits would occupy."""
        ...


@final
class Row:
    """What is free on one worker, in Python's integers."""

    __slots__ = (
        "active",
        "bookings",
        "by_id",
        "capacity",
        "cpu_milli",
        "cpu_milli_all",
        "disk_bytes",
        "draining",
        "drivers",
        "gpu_free",
        "gpu_memory_free",
        "gpu_milli",
        "gpu_milli_all",
        "gpus_whole",
        "kind",
        "kinds",
        "labels",
        "memory_bytes",
        "node",
        "path_cost_us",
        "places",
        "warm",
    )

    def __init__(self, node: NodeId, capacity: Capacity, kinds: Kinds) -> None:
        ids = [device.id for device in capacity.devices]
        self.node = node
        self.capacity = capacity
        self.labels = frozenset(capacity.labels)
        self.drivers: tuple[str, ...] = ()
        self.warm: tuple[str, ...] = ()
        self.places = {id_: place for place, id_ in enumerate(ids)}
        self.by_id = [self.places[id_] for id_ in sorted(ids)]
        self.set_kinds(kinds)
        self.cpu_milli_all = capacity.cpu_milli
        self.gpu_milli_all = WHOLE_GPU_MILLI * len(ids)
        self.cpu_milli = self.memory_bytes = self.disk_bytes = 0
        self.gpu_free = [0] * len(ids)
        self.gpu_memory_free = [0] * len(ids)
        self.gpu_milli = self.gpus_whole = 0
        self.active = self.path_cost_us = 0
        self.draining = False
        # Amounts booked since the worker's last report, by number of the booking.
        self.bookings: dict[int, Allocation] = {}

    def set_kinds(self, kinds: Kinds) -> None:
        """Give each device the number of its kind."""
        self.kinds = [kinds.number(device) for device in self.capacity.devices]
        # The kind of all devices when they are alike: most checks get short then.
        alike = len(frozenset(self.kinds)) == 1
        self.kind = self.kinds[0] if alike else NO_KIND

    def set_free(self, cpu_milli: int, memory: int, disk: int, active: int) -> None:
        """Take over what is free besides devices, and how many tasks there are."""
        self.cpu_milli = _within(cpu_milli, self.capacity.cpu_milli)
        self.memory_bytes = _within(memory, self.capacity.memory_bytes)
        self.disk_bytes = _within(disk, self.capacity.disk_bytes)
        self.active = active

    def fits(self, need: Need) -> bool:
        """Tell whether a task fits now: the same answer as all filters together."""
        if (
            need.cpu_milli > self.cpu_milli
            or need.memory_bytes > self.memory_bytes
            or need.disk_bytes > self.disk_bytes
            or self.draining
            or need.driver not in self.drivers
        ):
            return False
        if need.rtt_max_us is not None and self.path_cost_us > need.rtt_max_us:
            return False
        if need.labels and not need.labels <= self.labels:
            return False
        return need.gpu is None or self.gpus_that_fit(need) >= need.gpus_min

    def fits_idle(self, need: Need) -> bool:
        """Tell whether a task would fit if nothing else ran here."""
        capacity = self.capacity
        if (
            need.cpu_milli > capacity.cpu_milli
            or need.memory_bytes > capacity.memory_bytes
            or need.disk_bytes > capacity.disk_bytes
            or self.draining
            or need.driver not in self.drivers
            or (need.rtt_max_us is not None and self.path_cost_us > need.rtt_max_us)
            or not need.labels <= self.labels
        ):
            return False
        sizes = need.sizes()
        suited = [
            kind
            for kind, device in zip(self.kinds, capacity.devices, strict=True)
            if sizes[kind] <= device.memory_bytes
        ]
        return len(suited) >= need.gpus_min

    def gpus_that_fit(self, need: Need) -> int:
        """Count the devices that have room for one share of the task."""
        sizes, milli = need.sizes(), need.gpu_milli
        if self.kind != NO_KIND:
            size = sizes[self.kind]
            if size == NEVER:
                return 0
            if need.whole:
                return self.gpus_whole
            free = zip(self.gpu_free, self.gpu_memory_free, strict=True)
            return sum(
                [1 for share, memory in free if share >= milli and memory >= size]
            )
        return len(self._fitting(sizes, milli))

    def gpu_memory_taken(self, need: Need) -> int:
        """Return how much GPU memory a task that fits would occupy."""
        if need.gpu is None:
            return 0
        sizes = need.sizes()
        if self.kind != NO_KIND:
            used = min(need.gpus_max, self.gpus_that_fit(need))
            return used * sizes[self.kind]
        return sum([sizes[self.kinds[place]] for place in self.pick(need)])

    def pick(self, need: Need) -> list[int]:
        """Choose devices, by their places: those that the worker itself would."""
        fitting = self._fitting(need.sizes(), need.gpu_milli)
        if not (need.whole and self.kind != NO_KIND):
            devices, free = self.capacity.devices, self.gpu_free
            fitting.sort(key=lambda place: (free[place], devices[place].memory_bytes))
        return fitting[: need.gpus_max]

    def booking(self, need: Need) -> Allocation:
        """Return what a task would occupy; if it does not fit, what there is."""
        sizes, milli = need.sizes(), need.gpu_milli
        places = self.pick(need) if need.gpu is not None else []
        if len(places) < need.gpus_min:
            places += self._nearly_fitting(need, places)
        devices, free, memory = (
            self.capacity.devices,
            self.gpu_free,
            self.gpu_memory_free,
        )
        return Allocation(
            min(need.cpu_milli, self.cpu_milli),
            min(need.memory_bytes, self.memory_bytes),
            min(need.disk_bytes, self.disk_bytes),
            tuple(
                [
                    DeviceShare(
                        devices[place].id,
                        min(milli, free[place]),
                        min(sizes[self.kinds[place]], memory[place]),
                    )
                    for place in places
                ]
            ),
        )

    def add(self, allocation: Allocation, sign: int) -> list[int]:
        """Free or occupy `allocation`; return the places of the devices concerned."""
        self.cpu_milli += sign * allocation.cpu_milli
        self.memory_bytes += sign * allocation.memory_bytes
        self.disk_bytes += sign * allocation.disk_bytes
        self.active = max(0, self.active - sign)
        places = [self.places[share.device] for share in allocation.shares]
        for place, share in zip(places, allocation.shares, strict=True):
            self.gpus_whole -= self._is_whole(place)
            self.gpu_free[place] += sign * share.milli
            self.gpu_memory_free[place] += sign * share.memory_bytes
            self.gpu_milli += sign * share.milli
            self.gpus_whole += self._is_whole(place)
        return places

    def set_gpus(self, milli: Sequence[int], memory: Sequence[int]) -> None:
        """Take over what is free of each device; what is missing counts as busy."""
        devices = self.capacity.devices
        for place, device in enumerate(devices):
            free = milli[place] if place < len(milli) else 0
            room = memory[place] if place < len(memory) else 0
            self.gpu_free[place] = _within(free, WHOLE_GPU_MILLI)
            self.gpu_memory_free[place] = _within(room, device.memory_bytes)
        self.gpu_milli = sum(self.gpu_free)
        self.gpus_whole = sum(map(self._is_whole, range(len(devices))))

    def _is_whole(self, place: int) -> bool:
        return (
            self.gpu_free[place] == WHOLE_GPU_MILLI
            and self.gpu_memory_free[place] == self.capacity.devices[place].memory_bytes
        )

    def _fitting(self, sizes: list[int], milli: int) -> list[int]:
        """Return the places of devices with room, in the order of their ids."""
        free, memory, kinds = self.gpu_free, self.gpu_memory_free, self.kinds
        return [
            place
            for place in self.by_id
            if free[place] >= milli and memory[place] >= sizes[kinds[place]]
        ]

    def _nearly_fitting(self, need: Need, chosen: list[int]) -> list[int]:
        sizes = need.sizes()
        others = [
            place
            for place in self.by_id
            if place not in chosen and sizes[self.kinds[place]] != NEVER
        ]
        others.sort(key=lambda place: -self.gpu_free[place])
        return others[: need.gpus_min - len(chosen)]


def _within(amount: int, most: int) -> int:
    """Cut down what a peer claims to be free to what it claims to have."""
    return min(max(0, amount), most)
