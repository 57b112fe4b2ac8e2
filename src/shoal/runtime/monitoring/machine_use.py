"""Measures this machine: CPU, memory, disk, network and GPUs, now and recently.

A node lends a part of its machine, and the rest of the machine has other work. So what
is lent says little about what is used. Every `SAMPLE_S` the counters of the system are
read in a thread, and the average since the last time is kept. Averages grow with age: a
history holds `KEPT` averages over each of `OVER_S`, so a day takes a few hundred. They
are in memory only.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, final

import psutil

from shoal.drivers.gpus.detection import Gpus

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

SAMPLE_S: Final = 5.0
OVER_S: Final = (SAMPLE_S, 60.0, 600.0)
KEPT: Final = (120, 120, 144)
"""How many averages over each of these: ten minutes, two hours, a day."""

LOOPBACK: Final = "lo"


class DeviceUse(NamedTuple):
    """The use of one GPU."""

    id: str
    busy_milli: int
    memory_bytes: int


class MachineUse(NamedTuple):
    """The use of a machine, on average over the `over_s` before `at_s`."""

    at_s: float  # since 1970
    over_s: float
    cpu_milli: int
    memory_bytes: int
    disk_bytes: int
    read_bytes_s: int = 0
    written_bytes_s: int = 0
    received_bytes_s: int = 0
    sent_bytes_s: int = 0
    devices: tuple[DeviceUse, ...] = ()


class MachineSize(NamedTuple):
    """What a machine has, lent or not."""

    cpu_milli: int
    memory_bytes: int
    disk_bytes: int


AMOUNTS: Final = MachineUse._fields[2:9]
"""The fields that are averaged."""


@final
class UseHistory:
    """Uses of a machine, in coarser averages the older they are."""

    def __init__(self) -> None:
        self._levels = [deque[MachineUse](maxlen=kept) for kept in KEPT]
        self._open: list[list[MachineUse]] = [[] for _ in OVER_S[1:]]

    def add(self, use: MachineUse) -> None:
        """Add the latest use."""
        self._levels[0].append(use)
        for level, collected in enumerate(self._open, 1):
            collected.append(use)
            if sum(each.over_s for each in collected) < OVER_S[level]:
                return
            use = average(collected)
            collected.clear()
            self._levels[level].append(use)

    @property
    def latest(self) -> MachineUse | None:
        """The latest use, if there is one."""
        return self._levels[0][-1] if self._levels[0] else None

    def since(self, at_s: float) -> list[MachineUse]:
        """Return the uses that are later than this, the oldest first."""
        found: list[MachineUse] = []
        until_s = float("inf")
        for level in self._levels:  # A coarse average only where no fine one is.
            older = [use for use in level if use.at_s <= until_s]
            found = older + found
            if level:
                until_s = level[0].at_s - level[0].over_s
        return [use for use in found if use.at_s > at_s]


def average(uses: Sequence[MachineUse]) -> MachineUse:
    """Return the average of uses that follow each other, by how long each was."""
    over_s = sum(use.over_s for use in uses)

    def mean(values: Iterable[int]) -> int:
        parts = (value * use.over_s for value, use in zip(values, uses, strict=True))
        return round(sum(parts) / over_s) if over_s else 0

    amounts = {name: mean(getattr(use, name) for use in uses) for name in AMOUNTS}
    same = {tuple(each.id for each in use.devices) for use in uses}
    devices: tuple[DeviceUse, ...] = ()
    if len(same) == 1:  # Otherwise a GPU came or went.
        devices = tuple(
            DeviceUse(
                column[0].id,
                mean(each.busy_milli for each in column),
                mean(each.memory_bytes for each in column),
            )
            for column in zip(*(use.devices for use in uses), strict=True)
        )
    return MachineUse(uses[-1].at_s, over_s, devices=devices, **amounts)


class _Counters(NamedTuple):
    """What the system counts since it started."""

    at_s: float  # monotonic
    busy_s: float
    read_bytes: int
    written_bytes: int
    received_bytes: int
    sent_bytes: int


@final
class MachineMeter:
    """Reads the use of this machine, each time since the time before. Blocks."""

    def __init__(self, folder: Path) -> None:
        """Measure the disk of `folder`, besides all else."""
        self._folder = str(folder)
        self._cpus = psutil.cpu_count() or 1
        self._last = _counters()
        self._gpus: Gpus | None = None

    def size(self) -> MachineSize:
        """Return what the machine has."""
        memory = psutil.virtual_memory().total
        disk = psutil.disk_usage(self._folder)
        return MachineSize(1_000 * self._cpus, memory, disk.used + disk.free)

    def open_gpus(self) -> None:
        """Look for GPUs, once; a machine without a driver has none."""
        self._gpus = Gpus()

    def close(self) -> None:
        """Let go of the GPUs."""
        if self._gpus is not None:
            self._gpus.close()

    def read(self) -> MachineUse:
        """Return the use since the last call."""
        before, now = self._last, _counters()
        self._last = now
        over_s = max(1e-3, now.at_s - before.at_s)

        def rate(name: str) -> int:
            grown: int = getattr(now, name) - getattr(before, name)
            return max(0, round(grown / over_s))  # A counter may start again.

        memory = psutil.virtual_memory()
        busy = max(0.0, now.busy_s - before.busy_s) / over_s
        return MachineUse(
            time.time(),
            over_s,
            cpu_milli=round(1_000 * min(busy, self._cpus)),
            memory_bytes=memory.total - memory.available,
            disk_bytes=psutil.disk_usage(self._folder).used,
            read_bytes_s=rate("read_bytes"),
            written_bytes_s=rate("written_bytes"),
            received_bytes_s=rate("received_bytes"),
            sent_bytes_s=rate("sent_bytes"),
            devices=tuple(
                DeviceUse(use.id, use.busy_milli, use.memory_bytes)
                for use in ([] if self._gpus is None else self._gpus.uses())
            ),
        )


@final
class MachineWatch:
    """Measures this machine from `start` to `close`."""

    def __init__(self, folder: Path) -> None:
        """Measure the machine with the disk of `folder`."""
        self.history = UseHistory()
        self.size = MachineSize(0, 0, 0)
        self._folder = folder
        self._measuring: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to measure."""
        self._measuring = asyncio.get_running_loop().create_task(self._measure())

    async def close(self) -> None:
        """Stop measuring."""
        if self._measuring is not None:
            self._measuring.cancel()
            await asyncio.gather(self._measuring, return_exceptions=True)

    async def _measure(self) -> None:
        meter = await asyncio.to_thread(MachineMeter, self._folder)
        try:
            await asyncio.to_thread(meter.open_gpus)
            self.size = await asyncio.to_thread(meter.size)
            await asyncio.sleep(FIRST_S)
            while True:
                with contextlib.suppress(OSError):  # A disk that is gone for a while.
                    self.history.add(await asyncio.to_thread(meter.read))
                await asyncio.sleep(SAMPLE_S)
        finally:
            meter.close()


FIRST_S: Final = 1.0
"""The first use is known so soon: somebody may be looking at a node that started."""


def _counters() -> _Counters:
    disk, nets = psutil.disk_io_counters(), psutil.net_io_counters(pernic=True)
    outer = [each for name, each in nets.items() if name != LOOPBACK]
    return _Counters(
        time.monotonic(),
        busy_s(),
        0 if disk is None else disk.read_bytes,
        0 if disk is None else disk.write_bytes,
        sum(each.bytes_recv for each in outer),
        sum(each.bytes_sent for each in outer),
    )


def busy_s() -> float:
    """Return for how long CPUs worked since the machine started, added up."""
    times = psutil.cpu_times()
    idle_s = times.idle + getattr(times, "iowait", 0.0) + getattr(times, "steal", 0.0)
    guest_s = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
    return sum(times) - idle_s - guest_s  # A guest's time is counted as the user's too.
