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
    Milli,
    Modules,
    Name,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

WHOLE_GPU_MILLI: Final = MILLI_MAX
GIB: Final = 1 << 30


class Device(msgspec.Struct, frozen=True):
    """One GPU of a worker, detected or declared."""

    id: Name
    vendor: Name = ""
    model: Name = ""
    memory_bytes: Amount = 0


class Capacity(msgspec.Struct, frozen=True, omit_defaults=True):
    """All that a worker lends. Labels are sorted pairs.

    `lacks` names modules that the Python of its tasks was looked for and not found to
    have; a worker of an older release says nothing of it.
    """

    cpu_milli: Amount = 0
    memory_bytes: Amount = 0
    disk_bytes: Amount = 0
    devices: Annotated[tuple[Device, ...], Meta(max_length=DEVICES_MAX)] = ()
    labels: Labels = ()
    lacks: Modules = ()


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

    def mismatch(self, device: Device) -> str | None:
        """Say why `device` could never serve this need, even when idle."""
        if self.vendor and device.vendor.lower() != self.vendor.lower():
            return f"gpu vendor {device.vendor or 'unknown'} is not {self.vendor}"
        if self.models and device.model.upper() not in self.models:
            return (
                f"gpu model {device.model or 'unknown'} is not {'/'.join(self.models)}"
            )
        if device.memory_bytes < self.memory_min_bytes:
            have, want = in_gib(device.memory_bytes), in_gib(self.memory_min_bytes)
            return f"gpu memory {have} < {want}"
        most = self.memory_max_bytes
        if most is not None and device.memory_bytes > most:
            return f"gpu memory {in_gib(device.memory_bytes)} > {in_gib(most)}"
        return None

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


def missing_module(capacity: Capacity, profile: Profile) -> str | None:
    """Say which module a task of `profile` would not find on a worker, if any."""
    for module in profile.modules:
        if module in capacity.lacks:
            return f"no {module} here"
    return None


def in_gib(amount_bytes: int) -> str:
    """Write an amount of memory for people."""
    return f"{amount_bytes / GIB:.4g} GiB"


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

    def fit(self, profile: Profile) -> Allocation | str:
        """Return what `profile` would occupy, or why it does not fit, in numbers.

        Takes the tightest devices first, so that large ones stay whole.
        """
        if reason := self._lacking(profile):
            return reason
        shares: tuple[DeviceShare, ...] = ()
        if profile.gpu is not None:
            found = self._fit_gpus(profile.gpu)
            if isinstance(found, str):
                return found
            shares = found
        return Allocation(
            profile.cpu_milli, profile.memory_bytes, profile.disk_bytes, shares
        )

    def take(self, allocation: Allocation) -> None:
        """Occupy `allocation`; it must fit."""
        self._add(allocation, -1)

    def give(self, allocation: Allocation) -> None:
        """Free `allocation` again."""
        self._add(allocation, +1)

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
        if self._lacking(profile):
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

    def _lacking(self, profile: Profile) -> str | None:
        if missing := missing_module(self.capacity, profile):
            return missing
        if profile.cpu_milli > self.cpu_milli:
            return f"cpu {self.cpu_milli / 1000:g} < {profile.cpu_milli / 1000:g}"
        if profile.memory_bytes > self.memory_bytes:
            return (
                f"memory {in_gib(self.memory_bytes)} < {in_gib(profile.memory_bytes)}"
            )
        if profile.disk_bytes > self.disk_bytes:
            return f"disk {in_gib(self.disk_bytes)} < {in_gib(profile.disk_bytes)}"
        for key, value in profile.labels:
            if (key, value) not in self.capacity.labels:
                has = dict(self.capacity.labels).get(key, "absent")
                return f"label {key} is {has}, not {value}"
        return None

    def _fit_gpus(self, need: GpuNeed) -> tuple[DeviceShare, ...] | str:
        free: list[tuple[int, int, str]] = []
        reason = f"0 gpus < {need.count}"
        for device in self.capacity.devices:
            if mismatch := need.mismatch(device):
                reason = mismatch
                continue
            share = need.share_of(device)
            if share.milli <= self.milli[device.id] and (
                share.memory_bytes <= self.gpu_memory[device.id]
            ):
                free.append((self.milli[device.id], device.memory_bytes, device.id))
        if len(free) < need.count:
            suited = sum(not need.mismatch(d) for d in self.capacity.devices)
            if suited < need.count:
                return reason if suited == 0 else f"{suited} such gpus < {need.count}"
            return f"{len(free)} free gpus < {need.count}"
        chosen = sorted(free)[: max(need.count, need.count_max)]
        return tuple(need.share_of(self._devices[id_]) for _, _, id_ in chosen)

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
