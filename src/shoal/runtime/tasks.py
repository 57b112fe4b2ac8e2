"""The tasks that run on this node: a driver runs them, the machine hears of them."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, final

import msgspec

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
from shoal.drivers.process import cut
from shoal.drivers.redaction import Redacted, Redaction
from shoal.errors import ShoalError, UsageError
from shoal.net import multiaddr
from shoal.protocol.limits import OUTPUT_BYTES_MAX
from shoal.protocol.messages import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shoal.drivers import Driver, Stream
    from shoal.model.ids import Attempt
    from shoal.runtime.cargo import Cargo
    from shoal.runtime.mail import Post

FOLDERS_KEPT_MAX: Final = 100
"""Ended attempts whose work directory and output stay for whoever wants to look."""

DISCARDED_AT_ONCE: Final = 64
"""How many more stay, so that a thread removes them together: one by one, that
took as long as running short tasks."""

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
        cargo: Cargo,
        post: Post,
    ) -> None:
        """Tell `on_failure` if a driver cannot say that a task is over.

        `cargo` brings what a task needs, and keeps what it made; `post` brings it to
        the other tasks of its job.
        """
        self._drivers = drivers
        self._feed = feed
        self._on_failure = on_failure
        self._cargo = cargo
        self._post = post
        self._loading: dict[Attempt, asyncio.Task[Order]] = {}
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
            if loading := self._loading.get(effect.attempt):
                loading.cancel()
            found[0].stop(effect.attempt, effect.grace_s)

    async def close(self) -> None:
        """Kill whatever runs; nothing of it is alive afterwards."""
        running = [task for _, task in self._running.values()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _run(self, driver: Driver, effect: StartTask) -> None:
        try:
            outcome = await self._attempt(driver, effect)
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
        if len(self._ended) >= FOLDERS_KEPT_MAX + DISCARDED_AT_ONCE:
            await self._discard_oldest()

    async def _discard_oldest(self) -> None:
        by_driver: dict[str, tuple[Driver, list[Attempt]]] = {}
        while len(self._ended) > FOLDERS_KEPT_MAX:
            driver, attempt = self._ended.popleft()
            by_driver.setdefault(driver.name, (driver, []))[1].append(attempt)
        for driver, attempts in by_driver.values():
            await driver.discard(*attempts)

    async def _attempt(self, driver: Driver, effect: StartTask) -> Outcome:
        order = await self._loaded(driver, effect)
        if isinstance(order, Outcome):
            return order
        redaction = Redaction(order.secrets.values())
        watcher = _Watcher(effect.attempt, self._feed, redaction)
        try:
            outcome = await driver.run(self._post.joined(order), watcher)
        finally:
            self._post.end(effect.attempt)
        watcher.end()
        outcome = await self._cargo.unload(driver, order, outcome)
        if not outcome.reason:
            return outcome
        reason = cut(redaction.text(outcome.reason))
        return msgspec.structs.replace(outcome, reason=reason)

    async def _loaded(self, driver: Driver, effect: StartTask) -> Order | Outcome:
        """Return the order when all that it needs is there, or why it never will."""
        effect = self._cargo.given(effect)
        try:
            order = self._cargo.order(driver, effect)
        except ShoalError as error:
            return Outcome("not-started", reason=cut(str(error)))
        if effect.places:
            addresses = tuple(_host(place) for place in effect.places)
            order = msgspec.structs.replace(order, addresses=addresses)
        if not effect.task.work.workdir and not effect.checkpoint:
            return order
        loop = asyncio.get_running_loop()
        loading = loop.create_task(self._cargo.fill(driver, effect, order))
        self._loading[effect.attempt] = loading
        try:
            await asyncio.wait((loading,))
        finally:
            loading.cancel()
            del self._loading[effect.attempt]
        if loading.cancelled():
            return Outcome("not-started", reason="stopped before it started")
        if isinstance(failure := loading.exception(), ShoalError):
            return Outcome("not-started", reason=cut(str(failure)))
        return loading.result()


def _host(place: str) -> str:
    """Return the host of an address that a peer has named; empty if it is nonsense."""
    try:
        return multiaddr.parse(place).host
    except UsageError:
        return ""


@final
class _Watcher:
    """Passes on what a task writes, at a bounded pace."""

    def __init__(
        self, attempt: Attempt, feed: Callable[[Event], None], redaction: Redaction
    ) -> None:
        self._attempt = attempt
        self._feed = feed
        self._redaction = redaction
        self._streams: dict[Stream, Redacted] = {}  # only if there are secrets
        self._free_at = 0.0  # when what was sent so far fits the allowed rate

    async def wrote(self, stream: Stream, offset: int, data: bytes) -> None:
        """Pass a piece of output on; while this waits, the task is slowed down."""
        if self._redaction:
            shown = self._streams.setdefault(stream, Redacted(self._redaction))
            offset, data = shown.feed(offset, data)
        self._pass_on(stream, offset, data)
        loop = asyncio.get_running_loop()
        spent_s = len(data) / OUTPUT_RATE_BYTES_S
        self._free_at = max(self._free_at, loop.time()) + spent_s
        if (ahead_s := self._free_at - loop.time()) > 1.0:
            await asyncio.sleep(ahead_s - 1.0)

    def end(self) -> None:
        """Pass on what was kept back because it could have been half a secret."""
        for stream, shown in self._streams.items():
            self._pass_on(stream, *shown.end())

    def _pass_on(self, stream: Stream, offset: int, data: bytes) -> None:
        for start in range(0, len(data), OUTPUT_BYTES_MAX):
            part = data[start : start + OUTPUT_BYTES_MAX]
            self._feed(TaskWrote(self._attempt, stream, offset + start, part))

    def progressed(self, fraction: float | None, metrics: dict[str, float]) -> None:
        """Pass the latest figures on."""
        self._feed(TaskProgressed(self._attempt, fraction, metrics))
