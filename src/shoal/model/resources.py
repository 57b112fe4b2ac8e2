"""A worker's capacity, a task's profile, and the ledger between them.

All amounts are integers in small units, so that they add up exactly: thousandths
of a CPU and of a GPU, bytes of memory and disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, final

import msgspec
from msgspec import Meta

from shoal.model.text.bounds import (
    DEVICES_MAX,
    GPU_MODELS_MAX,
    MILLI_MAX,
    Amount,
    GpuCount,
    Labels,
    Lent,
    Milli,
    Modules,
    Name,
)
from shoal.model.text.shortages import (
    bytes_short,
    cpu_short,
    gpus_short,
    label_missing,
    loan_missing,
    module_missing,
    time_short,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

WHOLE_GPU_MILLI: Final = MILLI_MAX
GIB: Final = 1 << 30


class Device(msgspec.Struct, frozen=True):
    """One GPU of a worker, detected or declared."""

    id: Name
    vendor: Name = ""
    model: Name = ""
    memory_bytes: Amount = 0


class Capacity(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a worker lends. Labels are sorted pairs.

    `lacks` names modules that the Python of its tasks was looked for and not found to
    have; a worker of an older release says nothing of it. `longest_s` gets less as the
    end of a worker comes near whose machine is only allocated for a time.
    """

    cpu_milli: Amount = 0
    memory_bytes: Amount = 0
    disk_bytes: Amount = 0
    devices: Annotated[tuple[Device, ...], Meta(max_length=DEVICES_MAX)] = ()
    labels: Labels = ()
    lacks: Modules = ()
    lends: Lent = ()  # folders and environments, as `data:NAME` and `python:NAME`
    longest_s: Amount | None = None  # tasks that may take longer are refused


class GpuNeed(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """The GPUs of one task: `count` of them, up to `count_max` if they are free.

    Every one of them satisfies all the conditions. A `milli` below 1000 is a share
    of a single device; `models` is "any of", empty means any.
    """

    count: GpuCount = 1
    count_max: GpuCount = 1
    milli: Milli = WHOLE_GPU_MILLI
    memory_min_bytes: Amount = 0
    memory_max_bytes: Amount | None = None
    models: Annotated[tuple[Name, ...], Meta(max_length=GPU_MODELS_MAX)] = ()
    vendor: Name = ""

    def is_other_kind(self, device: Device) -> bool:
        """Whether `device` is of another vendor or model, whatever its memory."""
        if self.vendor and device.vendor.lower() != self.vendor.lower():
            return True
        return bool(self.models) and device.model.upper() not in self.models

    def rules_out(self, device: Device) -> bool:
        """Whether `device` could never serve this need, even when idle."""
        most = self.memory_max_bytes
        return (
            self.is_other_kind(device)
            or device.memory_bytes < self.memory_min_bytes
            or (most is not None and device.memory_bytes > most)
        )

    def share_of(self, device: Device) -> DeviceShare:
        """Return what one task takes of `device`; a whole GPU takes its memory too."""
        if self.milli == WHOLE_GPU_MILLI:
            memory_bytes = device.memory_bytes
        else:
            fair = device.memory_bytes * self.milli // WHOLE_GPU_MILLI
            memory_bytes = self.memory_min_bytes or fair
        return DeviceShare(device.id, self.milli, memory_bytes)


class Profile(
    msgspec.Struct, frozen=True, gc=False, cache_hash=True, omit_defaults=True
):
    """The resources one task needs. Hashable: tasks of one shape share work."""

    cpu_milli: Amount = 0
    memory_bytes: Amount = 0
    disk_bytes: Amount = 0
    gpu: GpuNeed | None = None
    labels: Labels = ()
    modules: Modules = ()  # of Python, which its program imports
    uses: Lent = ()  # what a worker must lend it
    longest_s: Amount = 0  # how long it may take, its end included; 0: nobody knows


class DeviceShare(msgspec.Struct, frozen=True, gc=False):
    """A part of one device."""

    device: Name
    milli: Milli
    memory_bytes: Amount


class Allocation(msgspec.Struct, frozen=True, gc=False):
    """Exactly what one lease occupies on its worker."""

    cpu_milli: Amount = 0
    memory_bytes: Amount = 0
    disk_bytes: Amount = 0
    shares: Annotated[tuple[DeviceShare, ...], Meta(max_length=DEVICES_MAX)] = ()

    def beyond(self, other: Allocation) -> Allocation:
        """Return the part of this that `other` does not cover."""
        covered = {share.device: share for share in other.shares}
        return Allocation(
            max(0, self.cpu_milli - other.cpu_milli),
            max(0, self.memory_bytes - other.memory_bytes),
            max(0, self.disk_bytes - other.disk_bytes),
            tuple(
                rest
                for share in self.shares
                if (rest := _share_beyond(share, covered.get(share.device)))
            ),
        )


def total(allocations: Iterable[Allocation]) -> Allocation:
    """Add allocations up."""
    cpu = memory = disk = 0
    shares: dict[str, DeviceShare] = {}
    for allocation in allocations:
        cpu += allocation.cpu_milli
        memory += allocation.memory_bytes
        disk += allocation.disk_bytes
        for share in allocation.shares:
            so_far = shares.get(share.device, DeviceShare(share.device, 0, 0))
            shares[share.device] = DeviceShare(
                share.device,
                so_far.milli + share.milli,
                so_far.memory_bytes + share.memory_bytes,
            )
    return Allocation(cpu, memory, disk, tuple(shares[d] for d in sorted(shares)))


def _share_beyond(share: DeviceShare, other: DeviceShare | None) -> DeviceShare | None:
    if other is None:
        return share
    milli = max(0, share.milli - other.milli)
    memory_bytes = max(0, share.memory_bytes - other.memory_bytes)
    if milli == 0 and memory_bytes == 0:
        return None
    return DeviceShare(share.device, milli, memory_bytes)


@final
class Ledger:
    """What is free of a capacity. Nothing can be taken twice."""

    def __init__(self, capacity: Capacity) -> None:
        self.capacity = capacity
        self.cpu_milli = capacity.cpu_milli
        self.memory_bytes = capacity.memory_bytes
        self.disk_bytes = capacity.disk_bytes
        self._devices = {device.id: device for device in capacity.devices}
        self.milli = dict.fromkeys(self._devices, WHOLE_GPU_MILLI)
        self.gpu_memory = {d.id: d.memory_bytes for d in capacity.devices}
        self.version = 0  # rises with every change

    @property
    def idle(self) -> bool:
        """Whether everything is free."""
        return (
            self.cpu_milli == self.capacity.cpu_milli
            and self.memory_bytes == self.capacity.memory_bytes
            and self.disk_bytes == self.capacity.disk_bytes
            and all(milli == WHOLE_GPU_MILLI for milli in self.milli.values())
            and all(
                self.gpu_memory[d.id] == d.memory_bytes for d in self.capacity.devices
            )
        )

    def copy(self) -> Ledger:
        """Return an independent ledger with the same balance."""
        twin = Ledger(self.capacity)
        twin.cpu_milli = self.cpu_milli
        twin.memory_bytes = self.memory_bytes
        twin.disk_bytes = self.disk_bytes
        twin.milli = dict(self.milli)
        twin.gpu_memory = dict(self.gpu_memory)
        return twin

    def fit(self, profile: Profile, devices: Sequence[str] = ()) -> Allocation | str:
        """Return what `profile` would occupy, or why it does not fit, in numbers.

        Takes these devices first, then the tightest, so that large ones stay whole.
        What could not be had even when idle is told before what others hold.
        """
        if not self._has_room(profile):
            idle = Ledger(self.capacity)
            return idle.shortage(profile) or self.shortage(profile) or "no room"
        shares: tuple[DeviceShare, ...] = ()
        if profile.gpu is not None:
            shares = self._tightest(profile.gpu, devices)
        return Allocation(
            profile.cpu_milli, profile.memory_bytes, profile.disk_bytes, shares
        )

    def shortage(self, profile: Profile) -> str | None:
        """Say what is not free here for a task, if anything."""
        own = self.capacity
        return (
            module_missing(own, profile)
            or time_short(own, profile)
            or loan_missing(own, profile)
            or label_missing(own, profile)
            or self.gpus_short(profile.gpu)
            or cpu_short(self.cpu_milli, own.cpu_milli, profile.cpu_milli)
            or bytes_short(
                "memory", self.memory_bytes, own.memory_bytes, profile.memory_bytes
            )
            or bytes_short("disk", self.disk_bytes, own.disk_bytes, profile.disk_bytes)
        )

    def gpus_short(self, need: GpuNeed | None) -> str | None:
        """Say how GPUs are short here, if they are."""
        if need is None:
            return None
        devices = self.capacity.devices
        rooms = [self._has_share(need, device) for device in devices]
        return gpus_short(need, devices, rooms)

    def take(self, allocation: Allocation) -> None:
        """Occupy `allocation`; it must fit."""
        self._add(allocation, -1)

    def give(self, allocation: Allocation) -> None:
        """Free `allocation` again."""
        self._add(allocation, +1)

    def most_of(self, allocation: Allocation) -> Allocation:
        """Return the part of `allocation` that is free."""
        return Allocation(
            min(allocation.cpu_milli, self.cpu_milli),
            min(allocation.memory_bytes, self.memory_bytes),
            min(allocation.disk_bytes, self.disk_bytes),
            tuple(
                DeviceShare(
                    share.device,
                    min(share.milli, self.milli[share.device]),
                    min(share.memory_bytes, self.gpu_memory[share.device]),
                )
                for share in allocation.shares
            ),
        )

    def use_up(self, profile: Profile, most: int) -> int:
        """Take room for tasks of a profile until none fits; return for how many."""
        if profile.gpu is None:
            return self._use_up_at_once(profile, most)
        for count in range(most):
            found = self.fit(profile)
            if isinstance(found, str):
                return count
            self.take(found)
        return most

    def _use_up_at_once(self, profile: Profile, most: int) -> int:
        """Do that for tasks without GPUs, however many they are."""
        if not self._has_room(profile):
            return 0
        cpu, memory, disk = profile.cpu_milli, profile.memory_bytes, profile.disk_bytes
        if cpu:
            most = min(most, self.cpu_milli // cpu)
        if memory:
            most = min(most, self.memory_bytes // memory)
        if disk:
            most = min(most, self.disk_bytes // disk)
        self.take(Allocation(most * cpu, most * memory, most * disk))
        return most

    def _has_room(self, profile: Profile) -> bool:
        need = profile.gpu
        return (
            profile.cpu_milli <= self.cpu_milli
            and profile.memory_bytes <= self.memory_bytes
            and profile.disk_bytes <= self.disk_bytes
            and module_missing(self.capacity, profile) is None
            and time_short(self.capacity, profile) is None
            and loan_missing(self.capacity, profile) is None
            and label_missing(self.capacity, profile) is None
            and (need is None or len(self._fitting(need)) >= need.count)
        )

    def _has_share(self, need: GpuNeed, device: Device) -> bool:
        share = need.share_of(device)
        return (
            share.milli <= self.milli[device.id]
            and share.memory_bytes <= self.gpu_memory[device.id]
        )

    def _fitting(self, need: GpuNeed) -> list[Device]:
        return [
            device
            for device in self.capacity.devices
            if not need.rules_out(device) and self._has_share(need, device)
        ]

    def _tightest(
        self, need: GpuNeed, wanted: Sequence[str]
    ) -> tuple[DeviceShare, ...]:
        order = {id_: place for place, id_ in enumerate(wanted)}
        last = len(order)
        free = [
            (order.get(d.id, last), self.milli[d.id], d.memory_bytes, d.id)
            for d in self._fitting(need)
        ]
        chosen = sorted(free)[: max(need.count, need.count_max)]
        return tuple(need.share_of(self._devices[id_]) for *_, id_ in chosen)

    def _add(self, allocation: Allocation, sign: int) -> None:
        self.version += 1
        self.cpu_milli += sign * allocation.cpu_milli
        self.memory_bytes += sign * allocation.memory_bytes
        self.disk_bytes += sign * allocation.disk_bytes
        assert 0 <= self.cpu_milli <= self.capacity.cpu_milli
        assert 0 <= self.memory_bytes <= self.capacity.memory_bytes
        assert 0 <= self.disk_bytes <= self.capacity.disk_bytes
        for share in allocation.shares:
            milli = self.milli[share.device] + sign * share.milli
            memory_bytes = self.gpu_memory[share.device] + sign * share.memory_bytes
            assert 0 <= milli <= WHOLE_GPU_MILLI
            assert 0 <= memory_bytes <= self._devices[share.device].memory_bytes
            self.milli[share.device] = milli
            self.gpu_memory[share.device] = memory_bytes
