"""Measures and deletes the files of ended jobs, in the background."""

from __future__ import annotations

import asyncio
import traceback
from typing import TYPE_CHECKING, Any, final

from shoal.core.events import Event
from shoal.core.housekeeping.events import DropJob, JobMeasured

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from shoal.model.job import Job
    from shoal.runtime.artifacts.artifacts import Artifacts
    from shoal.runtime.monitoring.output_log import OutputLog


@final
class JobFiles:
    """The files of this node's jobs: output, metrics, results, checkpoints."""

    def __init__(
        self, outputs: OutputLog, artifacts: Artifacts, feed: Callable[[Event], None]
    ) -> None:
        self._outputs = outputs
        self._artifacts = artifacts
        self._feed = feed
        self._work: asyncio.Queue[DropJob | Job] = asyncio.Queue()
        self._worker: asyncio.Task[None] | None = None

    @property
    def performers(self) -> dict[type[Any], Callable[[Any], None]]:
        """What performs the effects of housekeeping."""
        return {DropJob: self._work.put_nowait}

    def start(self) -> None:
        """Begin to work."""
        self._worker = asyncio.get_running_loop().create_task(self._go_on())

    async def close(self) -> None:
        """Stop; files that are left go at the next start."""
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)

    def measure(self, jobs: Iterable[Job]) -> None:
        """Find out how large some ended jobs are; the machine is told."""
        for job in jobs:
            self._work.put_nowait(job)

    async def _go_on(self) -> None:
        while True:
            work = await self._work.get()
            try:
                if isinstance(work, DropJob):
                    await self._outputs.remove(work.job.id)
                    await self._artifacts.discard(work.job)
                else:
                    self._feed(JobMeasured(work.id, await self._size_of(work)))
            except Exception as error:  # noqa: BLE001 - The next job may go well.
                traceback.print_exception(error)  # to the node's log

    async def _size_of(self, job: Job) -> int:
        written = await asyncio.to_thread(self._outputs.size_of, job.id)
        return written + self._artifacts.size_of(job)
