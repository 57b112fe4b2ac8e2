"""The tasks that run on this node: a driver runs them, the machine hears of them."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, final

from shoal import failpoints
from shoal.core.events import (
    Event,
    StartTask,
    StopTask,
    TaskEnded,
    TaskProgressed,
    TaskWrote,
)
from shoal.drivers import Order
from shoal.errors import UsageError
from shoal.net import multiaddr
from shoal.protocol.limits import OUTPUT_BYTES_MAX
from shoal.protocol.messages import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shoal.drivers import Driver, Stream
    from shoal.model.ids import Attempt

FOLDERS_KEPT_MAX: Final = 100
"""Ended attempts whose work directory and output stay for whoever wants to look."""

OUTPUT_RATE_BYTES_S: Final = 4 << 20
"""What a task may send of its output on average; beyond it, it is slowed down."""


@final
class Tasks:
    """Starts and stops attempts. Each ends in exactly one `TaskEnded`."""

    def __init__(
        self,
        drivers: Mapping[str, Driver],
        feed: Callable[[Event], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """Tell `on_failure` if a driver cannot say that a task is over."""
        self._drivers = drivers
        self._feed = feed
        self._on_failure = on_failure
        self._ended: deque[tuple[Driver, Attempt]] = deque()  # folders are kept
        self._running: dict[Attempt, tuple[Driver, asyncio.Task[None]]] = {}

    def __len__(self) -> int:
        return len(self._running)

    def start(self, effect: StartTask) -> None:
        """Run an attempt in the background."""
        driver = self._drivers.get(effect.task.work.driver)
        if driver is None:
            reason = f"this worker has no driver {effect.task.work.driver}"
            self._feed(TaskEnded(effect.attempt, Outcome("not-started", reason=reason)))
            return
        failpoints.reach("task.start")
        running = asyncio.get_running_loop().create_task(self._run(driver, effect))
        self._running[effect.attempt] = (driver, running)

    def stop(self, effect: StopTask) -> None:
        """Stop an attempt with grace; it still ends in a `TaskEnded`."""
        if found := self._running.get(effect.attempt):
            failpoints.reach("task.stop")
            found[0].stop(effect.attempt, effect.grace_s)

    async def close(self) -> None:
        """Kill whatever runs; nothing of it is alive afterwards."""
        running = [task for _, task in self._running.values()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _run(self, driver: Driver, effect: StartTask) -> None:
        order = Order(
            attempt=effect.attempt,
            task=effect.task,
            allocation=effect.allocation,
            addresses=tuple(_host(place) for place in effect.places),
        )
        watcher = _Watcher(effect.attempt, self._feed)
        try:
            outcome = await driver.run(order, watcher)
        except Exception as error:  # noqa: BLE001 - Whatever it is, see below.
            # Something of the task may be alive: its devices are not free, and this
            # node must not lend them again.
            self._on_failure(error)
            return
        finally:
            self._running.pop(effect.attempt, None)
        failpoints.reach("task.ended")
        self._feed(TaskEnded(effect.attempt, outcome))
        self._ended.append((driver, effect.attempt))
        if len(self._ended) > FOLDERS_KEPT_MAX:
            oldest, attempt = self._ended.popleft()
            await oldest.discard(attempt)


def _host(place: str) -> str:
    """Return the host of an address that a peer has named; empty if it is nonsense."""
    try:
        return multiaddr.parse(place).host
    except UsageError:
        return ""


@final
class _Watcher:
    """Passes on what a task writes, at a bounded pace."""

    def __init__(self, attempt: Attempt, feed: Callable[[Event], None]) -> None:
        self._attempt = attempt
        self._feed = feed
        self._free_at = 0.0  # when what was sent so far fits the allowed rate

    async def wrote(self, stream: Stream, offset: int, data: bytes) -> None:
        """Pass a piece of output on; while this waits, the task is slowed down."""
        for start in range(0, len(data), OUTPUT_BYTES_MAX):
            part = data[start : start + OUTPUT_BYTES_MAX]
            self._feed(TaskWrote(self._attempt, stream, offset + start, part))
        loop = asyncio.get_running_loop()
        spent_s = len(data) / OUTPUT_RATE_BYTES_S
        self._free_at = max(self._free_at, loop.time()) + spent_s
        if (ahead_s := self._free_at - loop.time()) > 1.0:
            await asyncio.sleep(ahead_s - 1.0)

    def progressed(self, fraction: float | None, metrics: dict[str, float]) -> None:
        """Pass the latest figures on."""
        self._feed(TaskProgressed(self._attempt, fraction, metrics))
