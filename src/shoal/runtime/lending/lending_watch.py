"""Tell a worker what its machine has left, and what its owner does.

Room is measured every `ROOM_S`. The owner is looked for as often as the worker wants,
and not at all if the machine is always lent. Both happen in threads.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final, final

from shoal.drivers.gpus.detection import Gpus
from shoal.runtime.lending.own_processes import OwnProcesses
from shoal.runtime.lending.owner_signs import OwnerSigns
from shoal.runtime.lending.room_meter import RoomMeter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from shoal.core.events import Event
    from shoal.core.leasing.worker import Worker
    from shoal.core.lending.events import DeviceMeasured

ROOM_S: Final = 4.0
"""A program that takes memory is noticed so soon."""


@final
class LendingWatch:
    """Measures this machine for its worker, from `start` to `close`."""

    def __init__(
        self,
        feed: Callable[[Event], None],
        tasks: Path,
        owner_input: Sequence[str],
        gpus_measured: Callable[[Iterable[DeviceMeasured]], None],
    ) -> None:
        """Tell facts to `feed`; `tasks` is where their folders are.

        What tasks use of GPUs is told to `gpus_measured`, too.
        """
        self._feed = feed
        self._gpus_measured = gpus_measured
        self._tasks = tasks
        self._owner_input = owner_input
        self._watching: list[asyncio.Task[None]] = []

    def start(self, worker: Worker, mark: str) -> None:
        """Begin to watch; processes with this mark are tasks, too."""
        create = asyncio.get_running_loop().create_task
        self._watching.append(create(self._watch_room(worker, mark)))
        if worker.lender.look_again_s is not None:
            self._watching.append(create(self._watch_owner(worker, mark)))

    async def close(self) -> None:
        """Stop watching."""
        for each in self._watching:
            each.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)

    async def _watch_room(self, worker: Worker, mark: str) -> None:
        gpus = await asyncio.to_thread(Gpus)
        try:
            processes = await asyncio.to_thread(OwnProcesses, mark)
            meter = RoomMeter(worker.capacity, self._tasks, processes, gpus)
            while True:
                is_leased = any(each.allocation.disk_bytes for each in worker.leases)
                with contextlib.suppress(OSError):  # A disk that is gone for a while.
                    measured = await asyncio.to_thread(
                        meter.read, disk_is_leased=is_leased
                    )
                    self._feed(measured)
                    self._gpus_measured(measured.devices)
                await asyncio.sleep(ROOM_S)
        finally:
            gpus.close()

    async def _watch_owner(self, worker: Worker, mark: str) -> None:
        gpus = await asyncio.to_thread(Gpus)
        signs: OwnerSigns | None = None
        try:
            processes = await asyncio.to_thread(OwnProcesses, mark)
            signs = OwnerSigns(worker.rules.lend, processes, gpus, self._owner_input)
            while (pause_s := worker.lender.look_again_s) is not None:
                self._feed(await asyncio.to_thread(signs.look))
                await asyncio.sleep(pause_s)
        finally:
            if signs is not None:
                signs.close()
            gpus.close()
