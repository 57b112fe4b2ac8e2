"""Run attempts with drivers, and report to the machine.

The machine's effects call `stage`, `start` and `stop`. Until `close`, staging ends in
exactly one `StagingEnded`, and a started attempt in exactly one `TaskEnded`. No
exception of a task, driver or artifact ends the node: it becomes the attempt's reason.
Work folders of this owner's tasks are kept, about the latest `FOLDERS_KEPT_MAX`; those
of other owners are removed at once.
"""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal import failpoints
from shoal.core.artifacts.events import StagingEnded
from shoal.core.events import (
    Event,
    PauseOutput,
    StageTask,
    StartTask,
    StopTask,
    TaskEnded,
    TaskProgressed,
    TaskWrote,
)
from shoal.drivers import RunOrder
from shoal.drivers.process import cut
from shoal.drivers.supervisor.redaction import Redacted, Redaction
from shoal.errors import ShoalError
from shoal.model import metric_lines
from shoal.model.ids import TaskId
from shoal.model.resources import WHOLE_GPU_MILLI as WHOLE
from shoal.model.text.bounds import AMOUNT_MAX
from shoal.protocol.limits import OUTPUT_BYTES_MAX
from shoal.protocol.messages import Outcome
from shoal.runtime.durability.crash_notes import Window
from shoal.runtime.leasing.last_words import LastWords

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from shoal.core.lending.events import DeviceMeasured
    from shoal.drivers import Driver, Stream
    from shoal.model.ids import Attempt, NodeId
    from shoal.runtime.artifacts.artifacts import Artifacts
    from shoal.runtime.artifacts.kept_stdout import KeptStdout
    from shoal.runtime.channels.task_visits import TaskVisits
    from shoal.runtime.durability.crash_notes import CrashNotes
    from shoal.runtime.host import Host
    from shoal.runtime.leasing.task_faults import TaskFaults
    from shoal.runtime.mail.mail_calls import MailCalls

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
"""What a task may send to another node on average; beyond it, it is slowed down."""

OUTPUT_HERE_BYTES_S: Final = 512 << 20
"""What all tasks of this node's own jobs may write together, to leave it some time."""

AHEAD_S, AHEAD_HERE_S = 1.0, 0.02
"""How far output may be ahead of these rates before a task waits."""


class OutputPace:
    """Slows tasks down that write faster than a rate."""

    def __init__(self, bytes_s: int, ahead_s: float) -> None:
        """Let a burst pass that the rate would need `ahead_s` for."""
        self._bytes_s = bytes_s
        self._ahead_s = ahead_s
        self._free_at = 0.0  # when the output so far fits the rate

    async def spend(self, size: int) -> None:
        """Wait until the output so far fits the rate."""
        now = asyncio.get_running_loop().time()
        self._free_at = max(self._free_at, now) + size / self._bytes_s
        if (early_s := self._free_at - now - self._ahead_s) > 0.0:
            await asyncio.sleep(early_s)


class GpuPeak(msgspec.Struct):
    """The most memory that an attempt was seen to use of any of its GPUs."""

    gpus: frozenset[str]
    most_bytes: int = 0


@final
class TaskRunner:
    """Starts and stops attempts; each ends in exactly one `TaskEnded`."""

    def __init__(
        self,
        drivers: Mapping[str, Driver],
        host: Host,
        artifacts: Artifacts,
        mail: MailCalls,
        visits: TaskVisits,
        handling: CrashNotes,
        task_faults: TaskFaults,
    ) -> None:
        """Run attempts with `drivers`; report to `host`.

        `artifacts` fetches what a task needs and stores its outputs; `mail` connects
        it to the other tasks of its job, `visits` to commands of its owner. An
        exception in any of these ends the attempt and is noted in `task_faults`.
        `handling` knows which jobs crashed this node before.
        """
        self._drivers = drivers
        self._feed = host.feed
        self._feed_now = host.feed_now  # Of an end: a device waits for what comes next.
        self._artifacts = artifacts
        self._mail = mail
        self._visits = visits
        self._handling = handling
        self._task_faults = task_faults
        self._staging: dict[Attempt, asyncio.Task[None]] = {}
        self._staged: dict[
            Attempt, tuple[Driver, bool]
        ] = {}  # not started yet; whether foreign
        self._ended: deque[tuple[Driver, Attempt]] = deque()  # folders still kept
        self._running: dict[Attempt, tuple[Driver, asyncio.Task[None]]] = {}
        self._names: dict[Attempt, TaskId] = {}
        self._stopped: set[Attempt] = set()  # running attempts asked to stop
        self._gpu_peaks: dict[Attempt, GpuPeak] = {}  # of running attempts with GPUs
        self._full: dict[NodeId, asyncio.Event] = {}  # set when there is room again
        self._pace_here = OutputPace(OUTPUT_HERE_BYTES_S, AHEAD_HERE_S)
        self._closed = False
        # Ended attempts whose folders go; one chore at a time removes them.
        self._unwanted: list[tuple[Driver, Attempt]] = []
        self._removing: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._running)

    def task_of(self, attempt: Attempt) -> TaskId | None:
        """Return the task of an attempt that is staging or running here."""
        return self._names.get(attempt)

    def measured(self, devices: Iterable[DeviceMeasured]) -> None:
        """Note how much memory of their GPUs tasks use now.

        A GPU that several tasks share tells nothing of any of them.
        """
        for device in devices:
            for peak in self._gpu_peaks.values():
                if device.id in peak.gpus:
                    peak.most_bytes = max(peak.most_bytes, device.by_tasks_bytes)

    @property
    def running(self) -> list[tuple[Attempt, TaskId]]:
        """The attempts that run here, and whose they are."""
        return [(attempt, self._names[attempt]) for attempt in self._running]

    def stage(self, effect: StageTask) -> None:
        """Fetch an attempt's code and data in the background."""
        start, attempt = effect.start, effect.start.attempt
        driver = self._driver_for(start)
        if self._closed:
            return
        if isinstance(driver, str):
            self._feed(StagingEnded(attempt, driver))
            return
        staging = asyncio.get_running_loop().create_task(self._stage(driver, start))
        self._staging[attempt] = staging
        self._names[attempt] = start.task.id

    def start(self, effect: StartTask) -> None:
        """Run an attempt in the background; do nothing after `close`."""
        attempt = effect.attempt
        self._staged.pop(attempt, None)
        driver = self._driver_for(effect)
        if self._closed:
            return
        if isinstance(driver, str):
            self._feed(TaskEnded(attempt, Outcome("not-started", reason=driver)))
            return
        running = asyncio.get_running_loop().create_task(self._run(driver, effect))
        self._running[attempt] = (driver, running)
        if gpus := [s.device for s in effect.allocation.shares if s.milli == WHOLE]:
            self._gpu_peaks[attempt] = GpuPeak(frozenset(gpus))
        self._names[attempt] = effect.task.id

    def _driver_for(self, effect: StartTask) -> Driver | str:
        """Return the driver for an attempt, or why it is refused."""
        task = effect.task
        driver = self._drivers.get(task.work.driver)
        if driver is None:
            return cut(f"this worker has no driver {task.work.driver}")
        return cut(self._handling.refusal(effect.attempt.scheduler, task.job)) or driver

    def stop(self, effect: StopTask) -> None:
        """Stop an attempt with grace, or its staging; both still report an end."""
        attempt = effect.attempt
        if staging := self._staging.get(attempt):
            failpoints.reach("task.stop")
            staging.cancel()
        elif staged := self._staged.pop(attempt, None):
            self._part_with(staged[0], attempt, is_foreign=staged[1])
        elif found := self._running.get(attempt):
            failpoints.reach("task.stop")
            self._stopped.add(attempt)
            if attempt.scheduler in self._full:
                self.pause_output(PauseOutput(attempt.scheduler, paused=True))
            found[0].stop(attempt, effect.grace_s)

    def pause_output(self, effect: PauseOutput) -> None:
        """Let a scheduler's tasks wait when they write, or go on."""
        if full := self._full.pop(effect.scheduler, None):
            full.set()  # Those who wait look again.
        if effect.paused:
            self._full[effect.scheduler] = asyncio.Event()

    def _pace(self, effect: StartTask) -> OutputPace:
        """Return what limits the output of an attempt."""
        if effect.attempt.scheduler == self._artifacts.staging.node:
            return self._pace_here
        return OutputPace(OUTPUT_RATE_BYTES_S, AHEAD_S)

    async def _room(self, attempt: Attempt) -> None:
        """Wait while an attempt's scheduler is behind, unless it is to stop."""
        while attempt not in self._stopped:
            full = self._full.get(attempt.scheduler)
            if full is None:
                return
            await full.wait()

    async def close(self) -> None:
        """Kill all attempts and wait for their end; start nothing more."""
        self._closed = True
        running = [task for _, task in self._running.values()]
        running += self._staging.values()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        if self._removing is not None:
            await self._removing

    async def _stage(self, driver: Driver, start: StartTask) -> None:
        attempt, task = start.attempt, start.task.id
        window = Window(self._handling, attempt.scheduler, task)
        reason = ""
        try:
            await window.open("start")
            await self._artifacts.staging.stage(driver, start)
        except asyncio.CancelledError:
            if self._closed:
                raise
            reason = "stopped before it started"
        except ShoalError as error:
            reason = str(error)
        except Exception as error:  # noqa: BLE001 - No task ends the node.
            reason = self._task_faults.note("its start", task, error)
        finally:
            window.close()
            del self._staging[attempt]
            self._names.pop(attempt, None)
        is_foreign = self._artifacts.staging.is_foreign(start)
        if reason:
            self._part_with(driver, attempt, is_foreign=is_foreign)
        else:
            self._staged[attempt] = (driver, is_foreign)
        self._feed(StagingEnded(attempt, cut(reason)))

    async def _run(self, driver: Driver, effect: StartTask) -> None:
        attempt = effect.attempt
        window = Window(self._handling, attempt.scheduler, effect.task.id)
        is_foreign = self._artifacts.staging.is_foreign(effect)
        try:
            await window.open("start")
            outcome = await self._attempt(driver, effect, window)
        finally:
            window.close()
            self._stopped.discard(attempt)
            self._running.pop(attempt, None)
            self._names.pop(attempt, None)
            peak = self._gpu_peaks.pop(attempt, None)
        if peak is not None and peak.most_bytes:
            took = min(peak.most_bytes, AMOUNT_MAX)
            outcome = msgspec.structs.replace(outcome, gpu_memory_bytes=took)
        self._feed_now(TaskEnded(attempt, outcome))
        if effect.environments:
            self._artifacts.left(effect)
        self._part_with(driver, attempt, is_foreign=is_foreign)

    def _part_with(self, driver: Driver, attempt: Attempt, *, is_foreign: bool) -> None:
        """Remove an ended attempt's folders, now or when many newer ones exist."""
        if is_foreign:
            self._unwanted.append((driver, attempt))
        else:
            self._ended.append((driver, attempt))
            if len(self._ended) >= FOLDERS_KEPT_MAX + DISCARDED_AT_ONCE:
                count = len(self._ended) - FOLDERS_KEPT_MAX
                self._unwanted += (self._ended.popleft() for _ in range(count))
        if self._unwanted and self._removing is None:
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
                self._task_faults.note("to remove old folders", TaskId(""), error)

    async def _attempt(
        self, driver: Driver, effect: StartTask, window: Window
    ) -> Outcome:
        """Run an attempt to its end; an error on the way ends it too."""
        task = effect.task.id
        try:
            failpoints.reach("task.start")
            mail = self._mail.calls_of(effect.attempt)
            order = self._artifacts.staging.prepare(driver, effect, mail)
            open_api = functools.partial(self._visits.open_api, effect.attempt)
            order = msgspec.structs.replace(order, open_api=open_api)
        except ShoalError as error:
            return Outcome("not-started", reason=cut(str(error)))
        except Exception as error:  # noqa: BLE001 - No task ends the node.
            reason = self._task_faults.note("its start", task, error)
            return Outcome("not-started", reason=cut(reason))
        if effect.attempt in self._stopped:
            return Outcome("not-started", reason="stopped before it started")
        redaction = Redaction(order.secrets.values())
        watcher = _Watcher(
            effect.attempt, self._feed, redaction, self._room, self._pace(effect)
        )
        with self._artifacts.stdout_of(order) as watcher.kept:
            outcome = await self._driven(driver, order, watcher)
            await window.open("end")
            outcome = await self._unloaded(driver, order, outcome, watcher)
        if not outcome.reason:
            return outcome
        reason = cut(redaction.text(outcome.reason))
        return msgspec.structs.replace(outcome, reason=reason)

    async def _unloaded(
        self, driver: Driver, order: RunOrder, outcome: Outcome, watcher: _Watcher
    ) -> Outcome:
        """Store an attempt's outputs; return the outcome to report."""
        try:
            watcher.end()
            outcome = watcher.explained(outcome)
            kept = await self._artifacts.unload(driver, order, outcome, watcher.kept)
            failpoints.reach("task.ended")
        except Exception as error:  # noqa: BLE001 - No task ends the node.
            task = order.task.id
            reason = self._task_faults.note("to take what it left", task, error)
            return msgspec.structs.replace(outcome, kind="lost", reason=reason)
        return kept

    async def _driven(
        self, driver: Driver, order: RunOrder, watcher: _Watcher
    ) -> Outcome:
        """Let the driver run an attempt; no process is left on return."""
        self._mail.open(order.attempt, order.task)
        self._visits.begin(order.attempt, driver)
        try:
            return await driver.run(order, watcher)
        except Exception as error:  # noqa: BLE001 - No driver ends the node.
            reason = self._task_faults.note("its driver", order.task.id, error)
            await self._cleared(driver, order)
            return Outcome("lost", reason=reason)
        finally:
            self._visits.end(order.attempt)
            self._mail.end(order.attempt)

    async def _cleared(self, driver: Driver, order: RunOrder) -> None:
        """Wait until no process of an attempt holds its devices."""
        while True:
            try:
                await driver.clear(order.attempt)
            except Exception as error:  # noqa: BLE001 - It is tried again.
                self._task_faults.note("to end what it left", order.task.id, error)
                await asyncio.sleep(CLEAR_AGAIN_S)
            else:
                return


@final
class _Watcher:
    """Forwards a task's output at a limited rate, with secrets removed."""

    def __init__(
        self,
        attempt: Attempt,
        feed: Callable[[Event], None],
        redaction: Redaction,
        room: Callable[[Attempt], Awaitable[None]],
        pace: OutputPace,
    ) -> None:
        self._attempt = attempt
        self._room = room
        self._pace = pace
        self._feed = feed
        self._redaction = redaction
        self._streams: dict[Stream, Redacted] = {}  # used only if there are secrets
        self._last_words = LastWords()
        self.kept: KeptStdout | None = None  # also receives the whole stdout
        self._told = 0  # bytes of reports of metrics so far

    async def wrote(self, stream: Stream, offset: int, data: bytes) -> None:
        """Forward a piece of output; waiting here slows the task down."""
        if self._redaction:
            shown = self._streams.setdefault(stream, Redacted(self._redaction))
            offset, data = shown.feed(offset, data)
        self._pass_on(stream, offset, data)
        await self._pace.spend(len(data))
        await self._room(self._attempt)

    def end(self) -> None:
        """Forward bytes held back because they could begin a secret."""
        for stream, shown in self._streams.items():
            self._pass_on(stream, *shown.end())

    def explained(self, outcome: Outcome) -> Outcome:
        """Add to a failure what the task said of it."""
        failed = outcome.kind == "exited" and outcome.exit_code != 0
        if not failed or outcome.reason:
            return outcome
        return msgspec.structs.replace(outcome, reason=self._last_words.error())

    def _pass_on(self, stream: Stream, offset: int, data: bytes) -> None:
        if stream == "stderr":
            self._last_words.add(data)
        if self.kept is not None and stream == "stdout":
            self.kept.write(offset, data)
        for start in range(0, len(data), OUTPUT_BYTES_MAX):
            part = data[start : start + OUTPUT_BYTES_MAX]
            self._feed(TaskWrote(self._attempt, stream, offset + start, part))

    def progressed(
        self,
        fraction: float | None,
        metrics: dict[str, float],
        lines: tuple[bytes, ...],
    ) -> None:
        """Forward every report, and then the latest: that may end the task."""
        for piece in metric_lines.packed(lines, OUTPUT_BYTES_MAX):
            self._feed(TaskWrote(self._attempt, "metrics", self._told, piece))
            self._told += len(piece)
        self._feed(TaskProgressed(self._attempt, fraction, metrics))
