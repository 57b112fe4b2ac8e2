"""Measure how much of this machine is in use, and how much of that by tasks.

Cgroup limits count as the size of the machine, so use is read where the limit is.
These functions read files of the system and block for about a millisecond.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import psutil

from shoal.core.lending.events import DeviceMeasured, MachineMeasured
from shoal.drivers.limits.machine_limits import MemoryGroup

if TYPE_CHECKING:
    from shoal.drivers.gpus import GpuMaker
    from shoal.model.resources import Capacity
    from shoal.runtime.lending.own_processes import OwnProcesses

PRESSURE: Final = Path("/proc/pressure/memory")
ENTRIES_MAX: Final = 20_000
"""Files of tasks that are looked at each time; of more, the last sum counts."""


@final
class RoomMeter:
    """Measures the machine that a node lends."""

    def __init__(
        self,
        capacity: Capacity,
        tasks: Path,
        processes: OwnProcesses,
        gpus: GpuMaker,
    ) -> None:
        """`tasks` is where their folders are, on the disk that is lent."""
        self._capacity = capacity
        self._tasks = tasks
        self._processes = processes
        self._gpus = gpus
        self._memory = MemoryGroup.find()
        self._disk_by_tasks = 0

    def read(self, *, disk_is_leased: bool) -> MachineMeasured:
        """Return what is in use now; tasks' files only count if disk is leased."""
        own, capacity = self._processes.use(), self._capacity
        free = psutil.disk_usage(str(self._tasks)).free
        if disk_is_leased:
            self._disk_by_tasks = self._files_of_tasks()
        lent = {device.id for device in capacity.devices}
        return MachineMeasured(
            memory_bytes=max(0, capacity.memory_bytes - self._available()),
            memory_by_tasks_bytes=own.memory_bytes,
            disk_bytes=max(0, capacity.disk_bytes - free),
            disk_by_tasks_bytes=self._disk_by_tasks if disk_is_leased else 0,
            devices=tuple(
                DeviceMeasured(use.id, use.memory_bytes, use.memory_of(own.pids))
                for use in self._gpus.uses()
                if use.id in lent
            ),
            cpu_milli=own.others_cpu_milli,
            stalled_milli=stalled_milli(),
        )

    def _available(self) -> int:
        available = psutil.virtual_memory().available
        return min(available, self._memory.available(available))

    def _files_of_tasks(self) -> int:
        """Return the disk that tasks' files take."""
        total, left, folders = 0, ENTRIES_MAX, [str(self._tasks)]
        while folders:
            with contextlib.suppress(OSError), os.scandir(folders.pop()) as entries:
                for entry in entries:
                    left -= 1
                    if left < 0:
                        return max(total, self._disk_by_tasks)
                    with contextlib.suppress(OSError):
                        total += 512 * entry.stat(follow_symlinks=False).st_blocks
                        if entry.is_dir(follow_symlinks=False):
                            folders.append(entry.path)
        return total


def stalled_milli(path: Path = PRESSURE) -> int:
    """Return the share of the last ten seconds in which a program lacked memory."""
    try:
        first = path.read_text(encoding="ascii").splitlines()[0]
        fields = dict(item.split("=") for item in first.split()[1:])
        return round(10 * float(fields["avg10"]))
    except (OSError, ValueError, KeyError, IndexError):
        return 0  # The kernel does not tell.
