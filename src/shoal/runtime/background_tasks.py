"""Work that runs beside the event loop's callers, and that nobody awaits."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar, final

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


@final
class BackgroundTasks:
    """Runs coroutines to their end, or until `close`."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine in the background."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)  # The loop itself would let it be collected.
        task.add_done_callback(self._running.discard)
        return task

    async def close(self) -> None:
        """Cancel what still runs, and wait for its end."""
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
