"""Simulate a worker's processes, which hold their devices until they are reaped.

The process table is the truth for checkers: they compare a machine's view of its
devices with it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final, final

import msgspec

from shoal.core.events import (
    CacheChanged,
    Event,
    PauseOutput,
    StartTask,
    StopTask,
    TaskEnded,
    TaskProgressed,
    TaskSaved,
    TaskWrote,
)
from shoal.model.caches import marks_of
from shoal.model.ids import BlobId, NodeId, TaskId
from shoal.model.job import Task
from shoal.protocol.messages import Outcome
from shoal.sim.agenda import Agenda

REAP_S: Final = (0.001, 0.02)
SLOW_REAP_S: Final = (0.5, 3.0)
SLOW_REAP_SHARE: Final = 0.1  # share of processes that linger when killed
TERM_S: Final = (0.01, 0.6)  # time a process takes to obey a notice
SIGTERM_CODE: Final = 143
SIGKILL_CODE: Final = 137


class MailHabit(msgspec.Struct, frozen=True, kw_only=True):
    """How one task's processes write to other tasks of the job."""

    to: tuple[str, ...]  # task names within the job
    pause_s: float  # time between letters
    burst: int = 1  # letters at a time
    reads: bool = True
    lies_to: tuple[
        TaskId, ...
    ] = ()  # tasks of other jobs that its worker forges mail to


class Behaviour(msgspec.Struct, frozen=True, kw_only=True):
    """What one task's processes do; the n-th start exits with the n-th code."""

    run_s: float = 1.0
    exit_codes: tuple[int, ...] = (0,)  # the last one repeats
    start_failures: int = 0  # number of starts that fail first
    deaf: bool = False  # ignores notices and must be killed
    poison: bool = False  # crashes its machine soon after the start
    straggles: bool = False  # the first start takes ten times as long
    talks: bool = False  # reports progress and writes output
    mail: MailHabit | None = None
    lane: bool = False  # runs function calls
    saves: int = 0  # so many starts also save a checkpoint when they talk


class SimProcess(msgspec.Struct, eq=False):
    """One process group, from its start until it is reaped."""

    pid: int
    start: StartTask
    behaviour: Behaviour
    began: float  # in virtual time
    exit_code: int | None = None  # set at its end, also by a signal
    kill_at: float | None = None  # when a stop's grace ends
    wrote: int = 0  # bytes of output


Plans = dict[TaskId, Behaviour]
Starts = dict[TaskId, int]
Watcher = Callable[[SimProcess], None]
Say = Callable[[Task, int | None], Outcome]
"""Returns the outcome that a worker reports for an exit code."""

Save = Callable[[str], BlobId]
"""Stores a checkpoint with this content; returns its tree."""

Pace = Callable[[SimProcess, float, Callable[[], None]], None]
"""Calls back when a process has done its work; other load may delay it."""


@final
class SimDriver:
    """Starts and stops the processes of one worker in one world."""

    def __init__(
        self,
        agenda: Agenda,
        rng: Random,
        plans: Plans,
        starts: Starts,
        feed: Callable[[Event], None],
    ) -> None:
        self.processes: dict[int, SimProcess] = {}  # by pid, until reaped
        self.on_started: Watcher = _ignore
        self.on_reaped: Watcher = _ignore
        self.on_wrote: Callable[[TaskWrote], None] = _ignore_piece
        self.on_poison: Watcher = _ignore
        self.pace: Pace = self._work
        self.say: Say = _honest
        self.save: Save = BlobId
        self._agenda = agenda
        self._rng = rng
        self._plans = plans
        self._starts = starts  # per task, in the whole world
        self._feed = feed
        self._pid = 0
        self._full: dict[NodeId, None] = {}  # schedulers that are behind with output
        self._cached: dict[str, None] = {}  # marks of trees cached by its tasks

    def start(self, order: StartTask) -> None:
        """Start a process, or report that it failed to start."""
        id_ = order.task.id
        behaviour = self._plans.get(id_, Behaviour())
        nth = self._starts.get(id_, 0)
        self._starts[id_] = nth + 1
        if nth < behaviour.start_failures:
            outcome = Outcome("not-started", reason="no such program")
            delay_s = self._rng.uniform(*REAP_S)
            self._agenda.after(delay_s, self._feed_end, order, outcome)
            return
        self._pid += 1
        process = SimProcess(self._pid, order, behaviour, self._agenda.now)
        self.processes[process.pid] = process
        self.on_started(process)
        self._cache(marks_of(order.task.work))
        self._plan(process, nth)

    def stop(self, order: StopTask) -> None:
        """Send a notice, and kill after the grace; a repeat may shorten it."""
        for process in list(self.processes.values()):
            if process.start.attempt == order.attempt and process.exit_code is None:
                self._notify(process, order.grace_s)

    def pause(self, order: PauseOutput) -> None:
        """Let a scheduler's processes write nothing for a while, or go on."""
        self._full.pop(order.scheduler, None)
        if order.paused:
            self._full[order.scheduler] = None

    def exit(self, process: SimProcess, code: int) -> None:
        """Let a process exit by itself."""
        self._exit(process, code)

    def abandon(self) -> None:
        """Kill every process shortly after its worker died."""
        for process in self.processes.values():
            self._agenda.after(self._rng.uniform(0.0, 0.5), self._vanish, process)

    def kill_all(self) -> None:
        """Remove all processes, after a power cut or at boot."""
        for process in list(self.processes.values()):
            self._vanish(process)

    def _cache(self, marks: tuple[str, ...]) -> None:
        if not all(mark in self._cached for mark in marks):
            self._cached.update(dict.fromkeys(marks))
            changed = CacheChanged(tuple(self._cached))
            self._agenda.after(0.0, self._feed, changed)

    def _plan(self, process: SimProcess, nth: int) -> None:
        behaviour = process.behaviour
        run_s = behaviour.run_s * (10.0 if behaviour.straggles and nth == 0 else 1.0)
        if behaviour.poison:
            self._agenda.after(min(run_s, 0.5), self._strike, process)
            return
        codes = behaviour.exit_codes
        code = codes[min(nth - behaviour.start_failures, len(codes) - 1)]
        self.pace(process, run_s, partial(self._exit, process, code))
        if behaviour.talks:
            self._write(process, b"first words\n")
            self._agenda.after(run_s / 2, self._talk, process)

    def _work(self, _: SimProcess, run_s: float, done: Callable[[], None]) -> None:
        self._agenda.after(run_s, done)

    def _notify(self, process: SimProcess, grace_s: float) -> None:
        now = self._agenda.now
        if process.kill_at is not None and process.kill_at <= now + grace_s:
            return
        first = process.kill_at is None
        process.kill_at = now + grace_s
        self._agenda.after(grace_s, self._kill, process)
        if first and not process.behaviour.deaf:
            delay_s = self._rng.uniform(*TERM_S)
            self._agenda.after(delay_s, self._exit, process, SIGTERM_CODE)

    def _kill(self, process: SimProcess) -> None:
        self._exit(process, SIGKILL_CODE)

    def _exit(self, process: SimProcess, code: int) -> None:
        if process.exit_code is not None or process.pid not in self.processes:
            return
        process.exit_code = code
        slow = self._rng.random() < SLOW_REAP_SHARE
        delay_s = self._rng.uniform(*(SLOW_REAP_S if slow else REAP_S))
        self._agenda.after(delay_s, self._reap, process)

    def _reap(self, process: SimProcess) -> None:
        if process.pid in self.processes:
            self._vanish(process)
            if process.behaviour.talks:
                self._write(process, b"last words\n")
            outcome = self.say(process.start.task, process.exit_code)
            self._feed_end(process.start, outcome)

    def _vanish(self, process: SimProcess) -> None:
        if self.processes.pop(process.pid, None) is not None:
            self.on_reaped(process)

    def _strike(self, process: SimProcess) -> None:
        if process.pid in self.processes and process.exit_code is None:
            self.on_poison(process)

    def _talk(self, process: SimProcess) -> None:
        if process.pid in self.processes and process.exit_code is None:
            attempt = process.start.attempt
            self._feed(TaskProgressed(attempt, 0.5, {"loss": 1.0}))
            self._write(process, b"half way\n")
            if self._starts[process.start.task.id] <= process.behaviour.saves:
                self._feed(TaskSaved(attempt, self.save("half way"), "ckpt"))

    def _write(self, process: SimProcess, data: bytes) -> None:
        attempt = process.start.attempt
        if attempt.scheduler in self._full:
            return  # It waits to write, and may be killed before.
        piece = TaskWrote(attempt, "stdout", process.wrote, data)
        process.wrote += len(data)
        self.on_wrote(piece)
        self._feed(piece)

    def _feed_end(self, order: StartTask, outcome: Outcome) -> None:
        self._feed(TaskEnded(order.attempt, outcome))


def _honest(_task: Task, exit_code: int | None) -> Outcome:
    return Outcome("exited", exit_code=exit_code)


def _ignore(process: SimProcess) -> None:
    """Ignore an event."""


def _ignore_piece(piece: TaskWrote) -> None:
    """Ignore output."""
