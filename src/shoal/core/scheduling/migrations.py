"""Moving running gangs to better places, when that pays.

Theory of operation. A gang that had to spread runs slower than under one switch, and
room under one may become free. Gangs that save checkpoints are watched from the first
that is kept: one goes on elsewhere with little lost. At each new checkpoint, and every
`LOOK_S`, the scheduler compares

    staying   what is left of its work, at its speed now
    moving    the same work at the speed of the other place, and the cost of the move:
              work since the last checkpoint, its transfer, and the start of the tasks

Speeds are the scheduler's own estimate (`GangRoom.slowdown`), by which a gang was also
placed. What is left is taken from the progress that the tasks report. Of those that
report none nobody knows; a program that has run for some time is taken to run for as
long again, as lifetimes of processes are found to be distributed.

    watched --pays--> winning --leases committed--> moved, and watched again
                      winning --refused, changed--> watched

The new leases are won first, all of them, while the gang runs on. Then, in one step,
its attempts are put back in the journal and stopped, and new ones start there. So a
gang never loses its place for one that somebody else takes meanwhile, and it moves only
if the new place is still better by then. The price is that the place must be free for
all of it: the room that it has does not count.

Jobs that run at most once or are not preemptible stay where they are. A gang moves
`MOVES_MAX` times in its life, which the journal counts; never for less than `GAIN_MIN`
of what is left or `GAIN_MIN_S`; and never while any group of this scheduler waits for
room, which is theirs. Since an attempt is young after a move, it expects little to be
left, and stays for some time.

Nothing here but the count is durable: after a restart the host tells all checkpoints
again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.core.deadlines import Deadlines
from shoal.core.negotiation.held_leases import shape_of
from shoal.model.ids import Attempt, GroupId, NodeId, RequestId, TaskId

if TYPE_CHECKING:
    from shoal.core.deadlines import DeadlineHeap
    from shoal.core.dispatch.run_states import TaskRun
    from shoal.core.events import Effect
    from shoal.core.negotiation.held_leases import HeldLease, HeldLeases
    from shoal.core.negotiation.negotiator import GangRound
    from shoal.core.records.records import GroupRecord
    from shoal.core.scheduling.group_queue import GroupQueue
    from shoal.core.scheduling.job_book import JobBook
    from shoal.core.scheduling.matcher import Matcher
    from shoal.core.scheduling.slot_placer import SlotPlacer
    from shoal.protocol.messages import Progress

LOOK_S: Final = 10.0
"""Between two looks at a gang that is watched."""

MOVES_MAX: Final = 3
"""Moves of one gang in its life."""

GAIN_MIN: Final = 0.2
"""A move must save this share of the time that is left."""

GAIN_MIN_S: Final = 10.0
"""And at least so long."""

START_MIN_S: Final = 1.0
"""A start is never taken to be faster."""


class MoveForecast(msgspec.Struct, frozen=True):
    """What a gang expects if it stays, and what a move would cost it."""

    left_s: float  # until its end, where it is
    cost_s: float  # until it is again as far as it is now

    def gain_s(self, slow_here: float, slow_there: float) -> float:
        """Return how much sooner it would end elsewhere."""
        return self.left_s * (1.0 - slow_there / slow_here) - self.cost_s

    def slowdown_max(self, slow_here: float) -> float:
        """Return how slow another place may be for the move to pay."""
        least_s = max(GAIN_MIN_S, GAIN_MIN * self.left_s) + self.cost_s
        if self.left_s <= least_s:
            return 0.0
        return slow_here * (1.0 - least_s / self.left_s)


class _Watch(msgspec.Struct):
    """A gang that saves checkpoints: what is known of these, and of its progress."""

    fetching: dict[TaskId, float] = msgspec.field(default_factory=dict[TaskId, float])
    saved: dict[TaskId, float] = msgspec.field(default_factory=dict[TaskId, float])
    fetch_s: float = 0.0  # how long the latest checkpoint took to come
    told_by: Attempt | None = None  # whose progress is known
    first: tuple[float, float] = (0.0, 0.0)  # the first share done, and when
    last: tuple[float, float] = (0.0, 0.0)
    request: RequestId | None = None  # for the place that is being won

    def left_s(self, runs: list[TaskRun], now: float) -> float:
        """Return how long a gang will probably go on where it is."""
        (done, then), (more, later) = self.first, self.last
        if any(run.attempt == self.told_by for run in runs) and more > done:
            pace_s = (later - then) / (more - done)
            return max(0.0, (1.0 - more) * pace_s - (now - later))
        return now - min(run.since for run in runs)


@final
class Migrations:
    """Decides which running gangs move, and when."""

    def __init__(
        self,
        book: JobBook,
        queue: GroupQueue,
        placer: SlotPlacer,
        matcher: Matcher,
        holdings: HeldLeases,
        heap: DeadlineHeap,
    ) -> None:
        self._book = book
        self._holdings = holdings
        self._queue = queue
        self._placer = placer
        self._matcher = matcher
        self._watched: dict[GroupId, _Watch] = {}
        self._looks: Deadlines[GroupId] = Deadlines(heap)

    # What is known of gangs.

    def on_fetching(self, task: TaskId, now: float) -> None:
        """Note that a checkpoint of a task is being fetched from now on."""
        if self._may_move(task):
            group = self._book.group_of(task)
            self._watch(group.id, now).fetching[task] = now

    def on_kept(self, task: TaskId, now: float) -> None:
        """Note that a checkpoint is here: there is no better moment to move."""
        if not self._may_move(task):
            return
        group = self._book.group_of(task)
        watch = self._watch(group.id, now)
        began = watch.fetching.pop(task, now)
        watch.saved[task], watch.fetch_s = began, now - began
        runs = self._book.live_in(group)
        self._holdings.note_saved(runs, min(watch.saved.values()))
        self._looks.set_earlier(group.id, now)

    def on_progress(self, run: TaskRun, progress: Progress, now: float) -> None:
        """Note how far a member of a gang is."""
        watch = self._watched.get(self._book.tasks[run.task].task.group)
        if watch is None or progress.fraction is None:
            return
        if watch.told_by is None or watch.told_by not in self._book.runs:
            watch.told_by = run.attempt
            watch.first = (progress.fraction, now)
        if watch.told_by == run.attempt:
            watch.last = (progress.fraction, now)

    def _may_move(self, task: TaskId) -> bool:
        """Whether a task is of a gang that may be stopped and started again."""
        record = self._book.tasks.get(task)
        if record is None or record.ended or not self._book.group_of(task).is_gang:
            return False
        job = self._book.job_of(task).job
        return job.preemptible and not job.at_most_once

    def _watch(self, group: GroupId, now: float) -> _Watch:
        watch = self._watched.get(group)
        if watch is None:
            watch = self._watched[group] = _Watch()
            self._looks.set(group, now + LOOK_S)
        return watch

    # Moves.

    def due(self, now: float) -> list[Effect]:
        """Look at the gangs whose time has come."""
        effects: list[Effect] = []
        for id_ in self._looks.pop_due(now):
            group = self._book.groups.get(id_)
            if group is None or group.open == 0 or self._moves(group) >= MOVES_MAX:
                self._watched.pop(id_, None)
                continue
            self._looks.set(id_, now + LOOK_S)
            effects += self._look(group, self._watched[id_], now)
        return effects

    def _look(self, group: GroupRecord, watch: _Watch, now: float) -> list[Effect]:
        """Begin to win a better place for a gang, if there is one."""
        runs = self._settled(group)
        if not runs or self._queue.kinds or not watch.saved or watch.request:
            return []
        job = self._book.jobs[group.job]
        shape = shape_of(job.job, group.group.tasks[0], runs[0].profile)
        here = self._placer.slowdown(shape, [run.worker for run in runs], group.id)
        if here is None or here <= 1.0:
            return []  # Of a worker that fell silent nobody knows how bad its place is.
        most = self._forecast(watch, runs, now).slowdown_max(here)
        if most < 1.0:
            return []
        round_, effects = self._matcher.win_place(group, job, runs, shape, most, now)
        watch.request = None if round_ is None else round_.request
        return effects

    def on_failed(self, round_: GangRound) -> bool:
        """Whether a round that failed was for a move; the gang stays where it is."""
        watch = self._of(round_)
        if watch is not None:
            watch.request = None
        return watch is not None

    def on_ready(
        self, round_: GangRound, held: list[HeldLease], now: float
    ) -> str | None:
        """Say why a gang moves to leases that it won; empty if it stays after all.

        None if they were not won for a move.
        """
        watch = self._of(round_)
        if watch is None:
            return None
        watch.request = None
        wish, group = round_.wish, self._book.groups.get(round_.wish.group)
        runs = self._settled(group) if group is not None else []
        if group is None or len(runs) != len(held):
            return ""
        old = [run.worker for run in runs]
        new = [holding.worker for holding in held]
        here = self._placer.slowdown(wish.shape, old, group.id)
        there = self._placer.slowdown(wish.shape, new, group.id)
        forecast = self._forecast(watch, runs, now)
        if here is None or there is None or there > forecast.slowdown_max(here):
            return ""
        watch.told_by = None
        gain_s = forecast.gain_s(here, there)
        return (
            f"moved from {_nodes(old)} to {_nodes(new)}: the network slowed it down "
            f"{here:.1f} times, and {there:.1f} times there; so it should end "
            f"{gain_s:.0f} s sooner, {forecast.cost_s:.0f} s for the move included"
        )

    def _of(self, round_: GangRound) -> _Watch | None:
        watch = self._watched.get(round_.wish.group)
        return watch if watch and watch.request == round_.request else None

    def _moves(self, group: GroupRecord) -> int:
        return max(self._book.tasks[task.id].moves for task in group.group.tasks)

    def _settled(self, group: GroupRecord) -> list[TaskRun]:
        """Return the runs of a gang if all of it runs; none while it changes."""
        runs = self._book.live_in(group)
        whole = not group.waiting and not group.exited and len(runs) == group.open
        sound = all(run.started and not run.lost for run in runs)
        return runs if whole and sound else []

    def _forecast(self, watch: _Watch, runs: list[TaskRun], now: float) -> MoveForecast:
        left_s = watch.left_s(runs, now)
        limit_s = self._book.tasks[runs[0].task].task.time_limit_s
        if limit_s is not None:
            left_s = min(left_s, runs[0].since + limit_s - now)
        # What was saved by an earlier attempt is all that this one could go on from.
        lost_s = now - max(min(watch.saved.values()), min(run.since for run in runs))
        start_s = max(START_MIN_S, *(run.start_s for run in runs))
        return MoveForecast(max(0.0, left_s), lost_s + watch.fetch_s + start_s)


def _nodes(nodes: list[NodeId]) -> str:
    several = dict.fromkeys(nodes)
    return next(iter(several)) if len(several) == 1 else f"{len(several)} nodes"
