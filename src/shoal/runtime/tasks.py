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
from shoal.model.ids import TaskId
from shoal.net import multiaddr
from shoal.protocol.limits import OUTPUT_BYTES_MAX
from shoal.protocol.messages import Outcome
from shoal.runtime.handling import Window

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shoal.drivers import Driver, Stream
    from shoal.model.ids import Attempt
    from shoal.runtime.cargo import Cargo
    from shoal.runtime.handling import Handling
    from shoal.runtime.kept_stdout import KeptStdout
    from shoal.runtime.mail import Post
    from shoal.runtime.mishaps import Mishaps

FOLDERS_KEPT_MAX: Final = 100
"""Ended attempts of the owner's own jobs whose folders stay, for people to look at.

Those of others are removed at once: nobody here looks at them, and they would let a
stranger fill the disk, one task after another."""

DISCARDED_AT_ONCE: Final = 64
"""How many more stay, so that a thread removes them together: one by one, that
took as long as running short tasks."""

CLEAR_AGAIN_S: Final = 10.0
"""After so long it is tried again to end what a driver could not end."""

OUTPUT_RATE_BYTES_S: Final = 4 << 20
"""What a task may send of its output on average; beyond it, it is slowed down."""


@final
class Tasks:
    """Starts and stops attempts. Each ends in exactly one `TaskEnded`."""

    def __init__(
        self,
        drivers: Mapping[str, Driver],
        feed: Callable[[Event], None],
        cargo: Cargo,
        post: Post,
        handling: Handling,
        mishaps: Mishaps,
    ) -> None:
        """Run attempts by `drivers`, and tell by `feed` how they end.

        `cargo` brings what a task needs, and keeps what it made; `post` brings it to
        the other tasks of its job. Whatever one of these raises is the end of the
        attempt, and one of `mishaps`; `handling` knows what the node died of before.
        """
        self._drivers = drivers
        self._feed = feed
        self._cargo = cargo
        self._post = post
        self._handling = handling
        self._mishaps = mishaps
        self._loading: dict[Attempt, asyncio.Task[Order]] = {}
        self._ended: deque[tuple[Driver, Attempt]] = deque()  # folders are kept
        self._running: dict[Attempt, tuple[Driver, asyncio.Task[None]]] = {}
        self._names: dict[Attempt, TaskId] = {}
        self._stopped: set[Attempt] = set()  # of those that run
        self._closed = False
        # Ended, of other owners; removed together by one chore at a time.
        self._unwanted: list[tuple[Driver, Attempt]] = []
        self._removing: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._running)

    def task_of(self, attempt: Attempt) -> TaskId | None:
        """Return the task of an attempt that runs here."""
        return self._names.get(attempt)

    def start(self, effect: StartTask) -> None:
        """Run an attempt in the background, unless the node ends."""
        if self._closed:
            return
        task, attempt = effect.task, effect.attempt
        driver = self._drivers.get(task.work.driver)
        reason = self._handling.refusal(attempt.scheduler, task.job)
        if driver is None:
            reason = f"this worker has no driver {task.work.driver}"
        if driver is None or reason:
            reason = cut(reason)
            self._feed(TaskEnded(attempt, Outcome("not-started", reason=reason)))
            return
        running = asyncio.get_running_loop().create_task(self._run(driver, effect))
        self._running[attempt] = (driver, running)
        self._names[attempt] = task.id

    def stop(self, effect: StopTask) -> None:
        """Stop an attempt with grace; it still ends in a `TaskEnded`."""
        if found := self._running.get(effect.attempt):
            failpoints.reach("task.stop")
            self._stopped.add(effect.attempt)
            if loading := self._loading.get(effect.attempt):
                loading.cancel()
            found[0].stop(effect.attempt, effect.grace_s)

    async def close(self) -> None:
        """Kill whatever runs; nothing of it is alive afterwards, and nothing begins."""
        self._closed = True
        running = [task for _, task in self._running.values()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        if self._removing is not None:
            await self._removing

    async def _run(self, driver: Driver, effect: StartTask) -> None:
        attempt = effect.attempt
        window = Window(self._handling, attempt.scheduler, effect.task.id)
        is_foreign = self._cargo.is_foreign(effect)
        try:
            await window.open("start")
            outcome = await self._attempt(driver, effect, window)
        finally:
            window.close()
            self._stopped.discard(attempt)
            self._running.pop(attempt, None)
            self._names.pop(attempt, None)
        self._feed(TaskEnded(attempt, outcome))
        await self._part_with(driver, attempt, is_foreign=is_foreign)

    async def _part_with(
        self, driver: Driver, attempt: Attempt, *, is_foreign: bool
    ) -> None:
        """Remove the folders of an ended attempt, now or when it is old."""
        if not is_foreign:
            self._ended.append((driver, attempt))
            if len(self._ended) >= FOLDERS_KEPT_MAX + DISCARDED_AT_ONCE:
                count = len(self._ended) - FOLDERS_KEPT_MAX
                await self._discard([self._ended.popleft() for _ in range(count)])
            return
        self._unwanted.append((driver, attempt))
        if self._removing is None:
            self._removing = asyncio.create_task(self._remove_unwanted())

    async def _remove_unwanted(self) -> None:
        while self._unwanted:
            some, self._unwanted = self._unwanted, []
            await self._discard(some)
        self._removing = None

    async def _discard(self, ended: list[tuple[Driver, Attempt]]) -> None:
        by_driver: dict[str, tuple[Driver, list[Attempt]]] = {}
        for driver, attempt in ended:
            by_driver.setdefault(driver.name, (driver, []))[1].append(attempt)
        for driver, attempts in by_driver.values():
            try:
                await driver.discard(*attempts)
            except Exception as error:  # noqa: BLE001 - They are only in the way.
                self._mishaps.note("to remove old folders", TaskId(""), error)

    async def _attempt(
        self, driver: Driver, effect: StartTask, window: Window
    ) -> Outcome:
        """Run an attempt to its end; whatever goes wrong on the way is its end too."""
        task = effect.task.id
        try:
            failpoints.reach("task.start")
            order = await self._loaded(driver, effect)
        except Exception as error:  # noqa: BLE001 - No task ends the node.
            reason = self._mishaps.note("its start", task, error)
            return Outcome("not-started", reason=cut(reason))
        if effect.attempt in self._stopped:
            order = Outcome("not-started", reason="stopped before it started")
        if isinstance(order, Outcome):
            return order
        redaction = Redaction(order.secrets.values())
        watcher = _Watcher(effect.attempt, self._feed, redaction)
        with self._cargo.stdout_of(order) as watcher.kept:
            outcome = await self._driven(driver, order, watcher)
            await window.open("end")
            outcome = await self._unloaded(driver, order, outcome, watcher)
        if not outcome.reason:
            return outcome
        reason = cut(redaction.text(outcome.reason))
        return msgspec.structs.replace(outcome, reason=reason)

    async def _unloaded(
        self, driver: Driver, order: Order, outcome: Outcome, watcher: _Watcher
    ) -> Outcome:
        """Take what an attempt left; return what to report."""
        try:
            watcher.end()
            kept = await self._cargo.unload(driver, order, outcome, watcher.kept)
            failpoints.reach("task.ended")
        except Exception as error:  # noqa: BLE001 - No task ends the node.
            task = order.task.id
            reason = self._mishaps.note("to take what it left", task, error)
            return msgspec.structs.replace(outcome, kind="lost", reason=reason)
        return kept

    async def _driven(self, driver: Driver, order: Order, watcher: _Watcher) -> Outcome:
        """Let a driver run an attempt; nothing of it is left when this returns."""
        try:
            return await driver.run(self._post.joined(order), watcher)
        except Exception as error:  # noqa: BLE001 - No driver ends the node.
            reason = self._mishaps.note("its driver", order.task.id, error)
            await self._cleared(driver, order)
            return Outcome("lost", reason=reason)
        finally:
            self._post.end(order.attempt)

    async def _cleared(self, driver: Driver, order: Order) -> None:
        """Wait until nothing of an attempt is alive: its devices are in use so long."""
        while True:
            try:
                await driver.clear(order.attempt)
            except Exception as error:  # noqa: BLE001 - It is tried again.
                self._mishaps.note("to end what it left", order.task.id, error)
                await asyncio.sleep(CLEAR_AGAIN_S)
            else:
                return

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
        self.kept: KeptStdout | None = None  # where all of stdout goes, too
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
        if self.kept is not None and stream == "stdout":
            self.kept.write(offset, data)
        for start in range(0, len(data), OUTPUT_BYTES_MAX):
            part = data[start : start + OUTPUT_BYTES_MAX]
            self._feed(TaskWrote(self._attempt, stream, offset + start, part))

    def progressed(self, fraction: float | None, metrics: dict[str, float]) -> None:
        """Pass the latest figures on."""
        self._feed(TaskProgressed(self._attempt, fraction, metrics))
