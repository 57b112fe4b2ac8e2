"""Processes of a simulated worker. They hold their devices until they are reaped.

The table of processes is the truth that checkers read: what a worker's machine
believes about its devices is compared with this, never the other way round.
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
    StartTask,
    StopTask,
    TaskEnded,
    TaskProgressed,
    TaskWrote,
)
from shoal.model.caches import marks_of
from shoal.model.ids import TaskId
from shoal.protocol.messages import Outcome
from shoal.sim.agenda import Agenda

REAP_S: Final = (0.001, 0.02)
SLOW_REAP_S: Final = (0.5, 3.0)
SLOW_REAP_SHARE: Final = 0.1  # of processes linger after the kill
TERM_S: Final = (0.01, 0.6)  # a willing process needs this to obey the notice
SIGTERM_CODE: Final = 143
SIGKILL_CODE: Final = 137


class Behaviour(msgspec.Struct, frozen=True, kw_only=True):
    """What the processes of one task do. The n-th start exits with the n-th code."""

    run_s: float = 1.0
    exit_codes: tuple[int, ...] = (0,)  # the last one repeats
    start_failures: int = 0  # so many starts fail first
    deaf: bool = False  # ignores the notice to stop, and must be killed
    poison: bool = False  # takes the whole machine down, shortly after its start
    straggles: bool = False  # the first start takes ten times as long
    talks: bool = False  # tells progress and writes output


class Process(msgspec.Struct, eq=False):
    """One process group, from its start until nothing of it is left."""

    pid: int
    start: StartTask
    behaviour: Behaviour
    began: float  # in virtual time
    exit_code: int | None = None  # set when it ends of itself or by a signal
    kill_at: float | None = None  # when the grace of a stop is over


Plans = dict[TaskId, Behaviour]
Starts = dict[TaskId, int]
Watcher = Callable[[Process], None]
Say = Callable[[TaskId, int | None], Outcome]
"""Returns how a worker says that a process has ended with this code."""

Pace = Callable[[Process, float, Callable[[], None]], None]
"""Lets a process work for so long, then calls back; other things may slow it down."""


@final
class Driver:
    """Starts and stops the processes of one worker in one world."""

    def __init__(
        self,
        agenda: Agenda,
        rng: Random,
        plans: Plans,
        starts: Starts,
        feed: Callable[[Event], None],
    ) -> None:
        self.processes: dict[int, Process] = {}  # by pid, until they are reaped
        self.on_started: Watcher = _ignore
        self.on_reaped: Watcher = _ignore
        self.on_poison: Watcher = _ignore
        self.pace: Pace = self._work
        self.say: Say = _honest
        self._agenda = agenda
        self._rng = rng
        self._plans = plans
        self._starts = starts  # of each task so far, in the whole world
        self._feed = feed
        self._pid = 0
        self._cached: dict[str, None] = {}  # marks of what its tasks brought here

    def start(self, order: StartTask) -> None:
        """Start a process, or fail to."""
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
        process = Process(self._pid, order, behaviour, self._agenda.now)
        self.processes[process.pid] = process
        self.on_started(process)
        self._cache(marks_of(order.task.work))
        self._plan(process, nth)

    def stop(self, order: StopTask) -> None:
        """Give notice, and kill after the grace. A repeat may shorten the grace."""
        for process in list(self.processes.values()):
            if process.start.attempt == order.attempt and process.exit_code is None:
                self._notify(process, order.grace_s)

    def abandon(self) -> None:
        """Let every process live on a little after its worker died, then kill it."""
        for process in self.processes.values():
            self._agenda.after(self._rng.uniform(0.0, 0.5), self._vanish, process)

    def kill_all(self) -> None:
        """Leave no process: the machine lost power, or its host boots again."""
        for process in list(self.processes.values()):
            self._vanish(process)

    def _cache(self, marks: tuple[str, ...]) -> None:
        if not all(mark in self._cached for mark in marks):
            self._cached.update(dict.fromkeys(marks))
            changed = CacheChanged(tuple(self._cached))
            self._agenda.after(0.0, self._feed, changed)

    def _plan(self, process: Process, nth: int) -> None:
        behaviour = process.behaviour
        run_s = behaviour.run_s * (10.0 if behaviour.straggles and nth == 0 else 1.0)
        if behaviour.poison:
            self._agenda.after(min(run_s, 0.5), self._strike, process)
            return
        codes = behaviour.exit_codes
        code = codes[min(nth - behaviour.start_failures, len(codes) - 1)]
        self.pace(process, run_s, partial(self._exit, process, code))
        if behaviour.talks:
            self._agenda.after(run_s / 2, self._talk, process)

    def _work(self, _: Process, run_s: float, done: Callable[[], None]) -> None:
        self._agenda.after(run_s, done)

    def _notify(self, process: Process, grace_s: float) -> None:
        now = self._agenda.now
        if process.kill_at is not None and process.kill_at <= now + grace_s:
            return
        first = process.kill_at is None
        process.kill_at = now + grace_s
        self._agenda.after(grace_s, self._kill, process)
        if first and not process.behaviour.deaf:
            delay_s = self._rng.uniform(*TERM_S)
            self._agenda.after(delay_s, self._exit, process, SIGTERM_CODE)

    def _kill(self, process: Process) -> None:
        self._exit(process, SIGKILL_CODE)

    def _exit(self, process: Process, code: int) -> None:
        if process.exit_code is not None or process.pid not in self.processes:
            return
        process.exit_code = code
        slow = self._rng.random() < SLOW_REAP_SHARE
        delay_s = self._rng.uniform(*(SLOW_REAP_S if slow else REAP_S))
        self._agenda.after(delay_s, self._reap, process)

    def _reap(self, process: Process) -> None:
        if process.pid in self.processes:
            self._vanish(process)
            outcome = self.say(process.start.task.id, process.exit_code)
            self._feed_end(process.start, outcome)

    def _vanish(self, process: Process) -> None:
        if self.processes.pop(process.pid, None) is not None:
            self.on_reaped(process)

    def _strike(self, process: Process) -> None:
        if process.pid in self.processes and process.exit_code is None:
            self.on_poison(process)

    def _talk(self, process: Process) -> None:
        if process.pid in self.processes and process.exit_code is None:
            attempt = process.start.attempt
            self._feed(TaskProgressed(attempt, 0.5, {"loss": 1.0}))
            self._feed(TaskWrote(attempt, "stdout", 0, b"half way\n"))

    def _feed_end(self, order: StartTask, outcome: Outcome) -> None:
        self._feed(TaskEnded(order.attempt, outcome))


def _honest(_task: TaskId, exit_code: int | None) -> Outcome:
    return Outcome("exited", exit_code=exit_code)


def _ignore(process: Process) -> None:
    """Take no notice."""
