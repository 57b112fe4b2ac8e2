"""GPUs of any maker: which there are, and what uses them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from shoal.model.resources import Device

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


class FoundGpus(msgspec.Struct, frozen=True):
    """GPUs, and the device files that a task needs for each."""

    devices: tuple[Device, ...] = ()
    files: dict[str, tuple[str, ...]] = {}


class GpuUse(NamedTuple):
    """The use of one GPU, in all and by process where the driver tells."""

    id: str
    busy_milli: int
    memory_bytes: int
    memory_by: tuple[tuple[int, int], ...] = ()  # process id and bytes
    busy_by: tuple[tuple[int, int], ...] = ()  # process id and thousandths

    def memory_of(self, pids: Collection[int]) -> int:
        """Return how much memory these processes use."""
        return sum(used for pid, used in self.memory_by if pid in pids)

    def busy_without(self, pids: Collection[int]) -> int:
        """Return how busy other processes keep it."""
        return sum(busy for pid, busy in self.busy_by if pid not in pids)


class GpuMaker(Protocol):
    """The GPUs of one maker. Its methods block, for seconds with some drivers."""

    def find(self) -> FoundGpus:
        """Return the GPUs; none if there is no driver."""
        ...

    def uses(self) -> Sequence[GpuUse]:
        """Return what uses them now."""
        ...

    def close(self) -> None:
        """Let go of the driver."""
        ...
