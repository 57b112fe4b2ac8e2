"""The jobs of a scheduler: the state of every task, and what follows from it.

Theory of operation. A job is groups, and a group is tasks that are alike. A group that
needs others is *blocked* until those have ended; then its tasks are

    waiting   they want a slot; `GroupRecord.waiting` has them in order
    running   at least one attempt is live, or an answer is being checked
    done, failed, unknown, cancelled   for good

The tasks of a large array have no record each, and those that end at once have one
entry in the journal (`core.records.array_states`).

A job with a schedule never runs: its tasks stay blocked until it is cancelled. What
`schedules` has of it is which runs are settled; a run is a job of its own.

A group that ends badly cancels the groups that need it. A job ends with its last group,
in the worst state of its tasks, and is kept for a while so that people can look it up.

The book knows nothing of workers' room, or of messages. Every change that must survive
a crash is returned as a journal entry; replaying the entries into an empty book gives
the same jobs again. Beyond `TASKS_KEPT_MAX` and `ENDED_JOBS_MAX` the oldest are gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from msgspec.structs import replace

from shoal.core.allocation.records import AllocationKept
from shoal.core.dispatch.run_states import EndedRun, TaskRun
from shoal.core.durability.journal import (
    Adopted,
    Answered,
    AnswerKept,
    ArrayEntry,
    ArrayKept,
    ArrayWaits,
    Assigned,
    AttemptPlace,
    BookEntry,
    Cancelled,
    Ceded,
    DrainSet,
    EndCalled,
    Entry,
    Exited,
    Finished,
    Incarnated,
    Judged,
    KeepingEntry,
    Led,
    NeedsKept,
    Removed,
    RestEnded,
    RetriesRenewed,
    Returned,
    Revoked,
    RunKept,
    ScheduleMoved,
    SecretsSealed,
    StandingKept,
    Submitted,
    TaskKept,
    UsageAdded,
    decode,
)
from shoal.core.records.array_states import ArrayStates, name_of
from shoal.core.records.records import GroupRecord, JobRecord, TaskRecord, cost_of
from shoal.core.records.task_table import TaskTable
from shoal.core.records.waiting_tasks import WaitingTasks
from shoal.core.verification.standings import Standings
from shoal.model.ids import Attempt, GroupId, JobId, NodeId, TaskId
from shoal.model.job import (
    ENDS,
    Group,
    JobState,
    Occurrence,
    TaskArray,
    TaskState,
)
from shoal.protocol.messages import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

TASKS_KEPT_MAX: Final = 200_000
"""Tasks in memory beyond which ended jobs are forgotten sooner."""

ENDED_JOBS_MAX: Final = 1_000
"""Ended jobs that are kept, also when a journal is compacted; the oldest go first."""

GANG_WEIGHT: Final = 0.25
"""Of the latest gang, in how long gangs run."""

OPEN: Final = frozenset[TaskState]({"blocked", "waiting", "running"})
_WORST: Final[tuple[JobState, ...]] = ("failed", "unknown", "cancelled", "done")


@final
class JobBook:
    """All jobs of one scheduler: active ones, and some that have ended."""

    def __init__(self, wall_at_zero_s: float | None = None) -> None:
        """Begin empty. The wall clock reads `wall_at_zero_s` at `now` = 0, if known."""
        self.generation = 0
        self.jobs: dict[JobId, JobRecord] = {}
        self.groups: dict[GroupId, GroupRecord] = {}
        self.tasks = TaskTable()
        self._kept = 0  # listed tasks that would take as much memory as all
        self.runs: dict[Attempt, TaskRun] = {}
        self.children: dict[Attempt, list[JobId]] = {}  # jobs that a task submitted
        self.left: list[Attempt] = []  # attempts that ended, and had children
        self.schedules: dict[JobId, ScheduleMoved] = {}  # of those that have not ended
        self.schedule_changes = 0  # how often that changed
        self.suspended: dict[JobId, None] = {}  # kept jobs that may start no task now
        self.wall_at_zero_s = wall_at_zero_s
        self.standings = Standings()
        self.answered = 0  # the number of the latest answer
        self.gangs_run_s: float | None = None  # about as long as the latest ones ran
        self._replayed_s: float | None = None  # time of day of the entry being replayed
        self.numbered = 0  # the number of the latest job
        self._just_ended: list[JobId] = []  # jobs to call for, not asked for yet
        self._ended_runs: list[EndedRun] = []  # not asked for yet
        self.ends = 0  # how many jobs have ended
        self._ended: dict[JobId, None] = {}  # in the order of their ends
        self._dependents: dict[GroupId, list[GroupId]] = {}

    # Reading.

    @property
    def ended(self) -> list[JobId]:
        """The ended jobs that are kept, in the order in which they ended."""
        return list(self._ended)

    def job_of(self, task: TaskId) -> JobRecord:
        """Return the job of a known task."""
        return self.jobs[self.tasks[task].task.job]

    def group_of(self, task: TaskId) -> GroupRecord:
        """Return the group of a known task."""
        return self.groups[self.tasks[task].task.group]

    def failures_of(self, task: TaskId) -> int:
        """Return the failures that count against a task's retries, shared by a gang."""
        group = self.group_of(task)
        if not group.is_gang:
            return self.tasks[task].failures
        return sum(record.failures for record in self._tasks(group))

    def live_in(self, group: GroupRecord) -> list[TaskRun]:
        """Return the live runs of a group, in the order of its tasks."""
        return [run for each in self.records_in(group) for run in each.live.values()]

    def records_in(self, group: GroupRecord) -> Iterable[TaskRecord]:
        """Go through the tasks of a group; of a large array, those that may run."""
        return self._tasks(group) if group.array is None else group.array.records()

    def queued(self, attempts: Iterable[Attempt]) -> list[TaskRun]:
        """Return the runs of these attempts that are live and queued."""
        runs = [self.runs.get(attempt) for attempt in attempts]
        return [run for run in runs if run is not None and run.queued]

    # Changes. Each returns the entries that make it durable.

    def submit(self, entry: Submitted, now: float, age_s: float = 0.0) -> list[Entry]:
        """Add a job; its groups that need no other wait from now on."""
        job = entry.job
        assert job.id not in self.jobs
        number = entry.number or self.numbered + 1
        self.numbered = max(self.numbered, number)
        self.jobs[job.id] = JobRecord(
            job=job,
            submitted_at=now - age_s,
            wall_s=entry.wall_s,
            quota_gpus=entry.quota_gpus,
            quota_cpu_milli=entry.quota_cpu_milli,
            number=number,
            open=len(job.groups),
            by=entry.by,
            serial=entry.serial,
            parent=entry.parent,
            forwards=entry.forwards,
            members=entry.members,
            term=1 if entry.members else 0,
        )
        if entry.parent is not None:
            self.children.setdefault(entry.parent.line[-1], []).append(job.id)
        if entry.members:
            self.suspended[job.id] = None
        if job.schedule is not None:
            self._move(ScheduleMoved(job.id, entry.wall_s, 0))
        if job.occurrence is not None:
            self._note_run(job.id, job.occurrence)
        for group in job.groups:
            self.groups[group.id] = GroupRecord(
                group=group,
                job=job.id,
                needs_open=len(group.needs),
                open=len(group.tasks),
            )
            for needed in group.needs:
                self._dependents.setdefault(needed, []).append(group.id)
            is_blocked = group.needs or job.schedule is not None
            self._add_tasks(group, "blocked" if is_blocked else "waiting")
        for group in job.groups:
            if not group.needs and job.schedule is None:
                self._unblock(self.groups[group.id], now - age_s)
        return [entry if entry.number else replace(entry, number=number)]

    def _add_tasks(self, group: Group, state: TaskState) -> None:
        self._kept += cost_of(group)
        if not isinstance(group.tasks, TaskArray):
            for task in group.tasks:
                self.tasks[task.id] = TaskRecord(task=task, state=state)
            return
        record = self.groups[group.id]
        record.array = ArrayStates(group.tasks, state)
        record.waiting = WaitingTasks(group.id, len(group.tasks))
        self.tasks.add_array(group.id, record.array)

    def _note_run(self, job: JobId, run: Occurrence) -> None:
        """Note that a schedule started a job: it never starts this run again."""
        if (known := self.schedules.get(run.schedule)) is not None:
            settled_s, runs = max(known.settled_s, run.due_s), run.number
            self._move(ScheduleMoved(run.schedule, settled_s, runs, last=job))

    def skip_run(self, schedule: JobId, due_s: float, reason: str) -> list[Entry]:
        """Settle all runs of a schedule up to a time without starting one."""
        known = self.schedules[schedule]
        return [self._move(replace(known, settled_s=due_s, skipped=reason))]

    def _move(self, moved: ScheduleMoved) -> Entry:
        self.schedules[moved.schedule] = moved
        self.schedule_changes += 1
        return moved

    def assign(self, places: tuple[AttemptPlace, ...], now: float) -> list[Entry]:
        """Start attempts; from now on their reports count.

        An older attempt of the same task is superseded: nothing it says counts any
        more, unless this is a second run beside it.
        """
        entries: list[Entry] = []
        for place in places:
            record = self.tasks[place.task]
            assert not record.ended
            group = self.group_of(place.task)
            if place.task not in group.seconds:
                for run in list(record.live.values()):
                    crashed = run.blamed
                    entries += self.put_back(run, "superseded", crashed=crashed)
            gang = self._gang_with(places) if group.is_gang else ()
            self._start(place, gang, now)
        return [*entries, Assigned(places, self.wall_s(now))]

    def _gang_with(self, places: tuple[AttemptPlace, ...]) -> tuple[NodeId, ...]:
        """Return where the members of a gang run, by rank, including these places."""
        group = self.group_of(places[0].task)
        at = {run.task: run.worker for run in self.live_in(group)}
        at.update({place.task: place.worker for place in places})
        return tuple(at[task.id] for task in group.group.tasks if task.id in at)

    def _start(self, place: AttemptPlace, gang: tuple[NodeId, ...], now: float) -> None:
        record = self.tasks[place.task]
        record.state = "running"
        record.attempts += 1
        record.reason = ""
        record.worker = place.worker
        record.began_wall_s = record.began_wall_s or self.wall_s(now)
        run = TaskRun(
            task=place.task,
            attempt=place.attempt,
            worker=place.worker,
            lease=place.lease,
            profile=place.profile,
            owner=place.owner,
            gang=gang,
            since=now,
        )
        record.live[place.attempt] = run
        self.runs[place.attempt] = run
        self.stop_waiting(place.task)
        group = self.group_of(place.task)
        group.live += 1
        group.served_at = now

    def drop_run(self, run: TaskRun) -> None:
        """Fence an attempt: nothing it still says counts."""
        del self.runs[run.attempt]
        record = self.tasks[run.task]
        del record.live[run.attempt]
        self.tasks.lost_a_run(record)
        self.group_of(run.task).live -= 1
        if run.attempt in self.children:
            self.left.append(run.attempt)
        run.move("end", run.since)
        if run.has_begun:
            task = self.tasks[run.task].task
            self._ended_runs.append(EndedRun(run, task, self.jobs[task.job].job))

    def take_ended_runs(self) -> list[EndedRun]:
        """Return the runs that ended since the last time, and that had begun."""
        ended, self._ended_runs = self._ended_runs, []
        return ended

    def put_back(
        self,
        run: TaskRun,
        reason: str,
        *,
        failed: bool = False,
        crashed: bool = False,
        moved: bool = False,
    ) -> list[Entry]:
        """End an attempt without a result; its task waits again."""
        record = self.tasks[run.task]
        if moved:
            record.moves, record.moved = record.moves + 1, reason
        record.failures += failed
        if crashed and not run.blamed:
            record.crashes += 1
        elif run.blamed and not crashed:
            record.crashes -= 1
        self.drop_run(run)
        record.reason = reason
        if not record.live:
            self.wait_again(run.task)
        counts = (record.failures, record.crashes)
        return [Returned(run.task, run.attempt, *counts, reason, moved)]

    def exit(self, run: TaskRun, outcome: Outcome) -> list[Entry]:
        """Note that a member of a gang succeeded; the gang is not done yet."""
        entry = Exited(run.task, run.attempt, outcome)
        self.drop_run(run)
        self.stop_waiting(run.task)
        self.group_of(run.task).exited[run.task] = entry
        return [entry]

    def answer(self, run: TaskRun, outcome: Outcome) -> list[Entry]:
        """Note an answer to a verified task; that does not end it yet."""
        self.answered += 1
        answer = AnswerKept(run.attempt, run.worker, run.owner, outcome, self.answered)
        return [self._answer(run.task, answer)]

    def _answer(self, task: TaskId, answer: AnswerKept) -> Answered:
        record = self.tasks[task]
        if run := record.live.get(answer.attempt):
            self.drop_run(run)
        record.answers = (*record.answers, answer)
        self.answered = max(self.answered, answer.number)
        return Answered(task, answer)

    def ask_anew(self, task: TaskId, reason: str) -> list[Entry]:
        """Forget the answers to a task, which agree that it failed; it waits again."""
        record = self.tasks[task]
        attempt = record.answers[-1].attempt
        for run in list(record.live.values()):
            self.drop_run(run)
        record.answers = ()
        record.failures += 1
        record.reason = reason
        self.wait_again(task)
        return [Returned(task, attempt, record.failures, record.crashes, reason)]

    def judge(self, entry: Judged) -> list[Entry]:
        """Note what a result says about the owner of its worker."""
        self.standings.take(entry)
        return [entry]

    def run_anew(self, task: TaskId, reason: str) -> list[Entry]:
        """Let a member that succeeded run again, because its gang must."""
        record = self.tasks[task]
        attempt = self.group_of(task).exited.pop(task).attempt
        record.reason = reason
        self.wait_again(task)
        return [Returned(task, attempt, record.failures, record.crashes, reason)]

    def renew(self, task: TaskId) -> list[Entry]:
        """Count the failures of a task anew, because it has made progress.

        Those of its job's gangs too, such as the workers of an aggregator. A job of
        days may fail more often than one that gets nowhere.
        """
        gangs = [g for g in self.job_of(task).job.groups if self.groups[g.id].is_gang]
        members = [task, *(member.id for gang in gangs for member in gang.tasks)]
        failed = [m for m in map(self.tasks.__getitem__, members) if m.failures]
        for record in failed:
            record.failures = 0
        return [RetriesRenewed(task)] if failed else []

    def acquit(self, run: TaskRun) -> None:
        """Forget earlier crashes of a task, because an attempt of it ran for long."""
        record = self.tasks[run.task]
        record.crashes = sum(other.blamed for other in record.live.values())

    def wait_again(self, task: TaskId) -> None:
        """Let a task want a slot again."""
        record = self.tasks[task]
        assert not record.ended
        if not record.live:
            record.state = "waiting"
        self.group_of(task).waiting[task] = None

    def want_second(self, task: TaskId) -> None:
        """Let a running task want a slot for a second run."""
        self.group_of(task).seconds[task] = None
        self.wait_again(task)

    def stop_waiting(self, task: TaskId) -> None:
        """Let a task want no slot any more."""
        group = self.group_of(task)
        group.waiting.pop(task, None)
        group.seconds.pop(task, None)

    def finish(
        self,
        task: TaskId,
        state: TaskState,
        now: float,
        *,
        attempt: Attempt | None = None,
        outcome: Outcome | None = None,
        reason: str = "",
    ) -> list[Entry]:
        """End a task for good; if it did not succeed, cancel what depends on it."""
        record = self.tasks[task]
        if record.ended:
            return []
        wall_s = self.wall_s(now)
        entries: list[Entry] = [Finished(task, state, attempt, outcome, reason, wall_s)]
        group = self.group_of(task)
        run = record.live.get(attempt) if attempt is not None else None
        if run is not None and state == "done" and now > run.since:
            group.done_s.append(now - run.since)  # In a replay nothing takes time.
        if run is not None:
            record.worker = run.worker
        for answer in record.answers:
            if answer.attempt == attempt:
                record.worker = answer.worker
        record.ended_wall_s = wall_s
        for live in list(record.live.values()):
            self.drop_run(live)
        record.state = state
        record.reason = reason
        record.outcome = outcome
        self.stop_waiting(task)
        group.exited.pop(task, None)
        group.open -= 1
        if group.open == 0:
            if group.is_gang and group.done_s:
                self._learn_gang(max(group.done_s))
            entries += self._end_group(group, now)
        return entries

    def _learn_gang(self, run_s: float) -> None:
        usual_s = self.gangs_run_s if self.gangs_run_s is not None else run_s
        self.gangs_run_s = usual_s + GANG_WEIGHT * (run_s - usual_s)

    def cancel(self, job: JobId, reason: str, now: float) -> list[Entry]:
        """End every task of a job that has not ended."""
        record = self.jobs[job]
        entries: list[Entry] = [Cancelled(job, reason, self.wall_s(now))]
        record.reason = reason
        for group in record.job.groups:
            # Replaying the entry above ends the tasks, too.
            self._end_all(self.groups[group.id], reason or "cancelled", now)
        return entries

    def _end_all(self, group: GroupRecord, reason: str, now: float) -> list[Entry]:
        """Cancel every task of a group that has not ended."""
        array = group.array
        if array is None:
            tasks = [task.id for task in group.group.tasks]
        else:
            tried = array.places(OPEN, fresh=False)
            tasks = [name_of(group.id, place) for place in tried]
        entries: list[Entry] = []
        for task in tasks:
            entries += self.finish(task, "cancelled", now, reason=reason)
        if array is None or not array.fresh or array.fresh_state in ENDS:
            return entries
        wall_s = self.wall_s(now)
        group.waiting.clear()
        group.open -= array.end_fresh("cancelled", reason, wall_s)
        entries = [RestEnded(group.id, "cancelled", reason, wall_s)]
        return entries + (self._end_group(group, now) if group.open == 0 else [])

    def end_called(self, job: JobId, trouble: str) -> list[Entry]:
        """Note that the call at the end of a job was made, or given up."""
        entry = self.jobs[job].called = EndCalled(job, trouble)
        return [entry]

    def is_call_open(self, record: JobRecord) -> bool:
        """Whether the call at the end of a job is still to be made."""
        has_ended = record.state != "active"
        names_one = record.job.on_end is not None and record.job.schedule is None
        return has_ended and names_one and record.called is None

    def take_ended(self) -> list[JobId]:
        """Return the jobs that ended since the last time."""
        ended, self._just_ended = self._just_ended, []
        return ended

    def adopt(self, job: JobId, names: dict[Attempt, Attempt]) -> list[Entry]:
        """Give live attempts of an earlier scheduler new names."""
        for was, attempt in names.items():
            run = self.runs.pop(was)
            live = self.tasks[run.task].live
            run.attempt = attempt
            self.runs[attempt] = run
            self.tasks[run.task].live = {r.attempt: r for r in live.values()}
        return [Adopted(job, tuple(names.items()))] if names else []

    def cede(self, job: JobId) -> None:
        """Forget a job that another scheduler has."""
        for group in self.jobs[job].job.groups:
            for run in self.live_in(self.groups[group.id]):
                self.drop_run(run)
            self._dependents.pop(group.id, None)
        self._ended.pop(job, None)
        self.suspended.pop(job, None)
        self._forget(job)

    def remove(self, jobs: Iterable[JobId]) -> list[Entry]:
        """Forget jobs that have ended."""
        gone = tuple(jobs)
        for job in gone:
            del self._ended[job]
            self._forget(job)
        return [Removed(gone)]

    # Replay.

    def replay(self, entry: Entry, now: float, wall_s: float) -> None:
        """Apply one entry of an earlier life."""
        self._replayed_s = 0.0
        if isinstance(entry, Assigned | Finished | Cancelled | RestEnded):
            self._replayed_s = entry.wall_s
        if isinstance(entry, KeepingEntry):
            self._replay_keeping(entry, now, wall_s)
        else:
            self._replay(entry, now, wall_s)
        self._replayed_s = None
        if self.tasks.is_restless:
            self.tasks.settle()

    def wall_s(self, now: float) -> float:
        """Return the time of day now, or of the entry being replayed; 0 if unknown."""
        if self._replayed_s is not None:
            return self._replayed_s
        return 0.0 if self.wall_at_zero_s is None else self.wall_at_zero_s + now

    def _replay(self, entry: BookEntry, now: float, wall_s: float) -> None:
        match entry:
            case Incarnated():
                self.generation = max(self.generation, entry.generation)
                self.numbered = max(self.numbered, entry.numbered)
            case Submitted():
                self.submit(entry, now, max(0.0, wall_s - entry.wall_s))
            case Assigned():
                self._replay_assigned(entry, now)
            case Exited():
                if run := self.runs.get(entry.attempt):
                    self.exit(run, entry.outcome)
            case Returned() | RetriesRenewed():
                self._replay_counts(entry)
            case Finished():
                self.finish(
                    entry.task,
                    entry.state,
                    now,
                    attempt=entry.attempt,
                    outcome=entry.outcome,
                    reason=entry.reason,
                )
            case Cancelled():
                if entry.job in self.jobs:
                    self.cancel(entry.job, entry.reason, now)
            case (
                Removed()
                | EndCalled()
                | ScheduleMoved()
                | Revoked()
                | UsageAdded()
                | NeedsKept()
                | DrainSet()
                | AllocationKept()
            ):
                self._replay_upkeep(entry)
            case RunKept() | TaskKept() | ArrayKept() | ArrayWaits() | RestEnded():
                self._replay_compact(entry, now)
            case Answered():
                self._replay_answered(entry)
            case Judged() | StandingKept():
                self.standings.take(entry)

    def _replay_upkeep(self, entry: Entry) -> None:
        if isinstance(entry, Removed):
            self.remove(job for job in entry.jobs if job in self._ended)
        elif isinstance(entry, EndCalled) and entry.job in self.jobs:
            self.jobs[entry.job].called = entry
        elif isinstance(entry, ScheduleMoved) and entry.schedule in self.schedules:
            self._move(entry)

    def _replay_keeping(self, entry: KeepingEntry, now: float, wall_s: float) -> None:
        if isinstance(entry, SecretsSealed) and entry.job in self.jobs:
            self.jobs[entry.job].sealed[entry.member] = entry.secrets
        elif isinstance(entry, Adopted):
            self.adopt(entry.job, {w: a for w, a in entry.names if w in self.runs})
        elif isinstance(entry, Ceded) and entry.job in self.jobs:
            self.cede(entry.job)
        elif isinstance(entry, Led):
            for inherited in map(decode, entry.entries):
                own = isinstance(inherited, Submitted) and replace(inherited, number=0)
                self.replay(own or inherited, now, wall_s)
            if entry.job in self.jobs and not entry.alone:
                self.jobs[entry.job].term = entry.term
                self.suspended[entry.job] = None

    def _replay_assigned(self, entry: Assigned, now: float) -> None:
        known = [p for p in entry.places if p.task in self.tasks]
        places = tuple(p for p in known if not self.tasks[p.task].ended)
        for place in places:
            if self.tasks[place.task].live:
                # A superseded attempt was returned before: this is a second run.
                self.group_of(place.task).seconds[place.task] = None
        self.assign(places, now)

    def _replay_counts(self, entry: Returned | RetriesRenewed) -> None:
        record = self.tasks.get(entry.task)
        if record is None or record.ended:
            return
        if isinstance(entry, RetriesRenewed):
            self.renew(entry.task)
            return
        if run := self.runs.get(entry.attempt):
            self.put_back(run, entry.reason, moved=entry.moved)
        elif any(entry.attempt == answer.attempt for answer in record.answers):
            self.ask_anew(entry.task, entry.reason)
        elif entry.task in self.group_of(entry.task).exited:
            self.run_anew(entry.task, entry.reason)
        record.failures = entry.failures
        record.crashes = entry.crashes

    def _replay_answered(self, entry: Answered) -> None:
        record = self.tasks.get(entry.task)
        if record is not None and not record.ended:
            self._answer(entry.task, entry.answer)
            if not record.live:
                self.stop_waiting(entry.task)

    def _replay_compact(
        self, entry: RunKept | TaskKept | ArrayEntry, now: float
    ) -> None:
        if isinstance(entry, RunKept):
            self._start(entry.place, entry.gang, now)
            return
        if isinstance(entry, TaskKept):
            self._replay_kept(entry, now)
            return
        group = self.groups.get(entry.group)
        array = None if group is None else group.array
        if group is None or array is None:
            return
        if isinstance(entry, RestEnded):
            self._end_all(group, entry.reason, now)
        elif isinstance(entry, ArrayWaits):
            for place in entry.places:
                self.wait_again(name_of(group.id, place))
        else:
            self._load_kept(group, array, entry, now)

    def _load_kept(
        self, group: GroupRecord, array: ArrayStates, entry: ArrayKept, now: float
    ) -> None:
        assert isinstance(group.waiting, WaitingTasks)
        ended = array.kept_ended
        group.waiting.leave(entry.start, array.load(entry))
        group.open -= array.kept_ended - ended
        group.served_at = now
        if group.open == 0:
            self._end_group(group, now)

    def _replay_kept(self, entry: TaskKept, now: float) -> None:
        record, group = self.tasks[entry.task], self.group_of(entry.task)
        if entry.end is not None:
            self.finish(entry.task, entry.end, now)
        elif entry.exited is not None:
            assert entry.outcome is not None
            record.state = "running"
            self.stop_waiting(entry.task)
            exited = Exited(entry.task, entry.exited, entry.outcome)
            group.exited[entry.task] = exited
        elif not record.live:
            self.stop_waiting(entry.task)  # It waits behind tasks that never ran.
            self.wait_again(entry.task)
        if entry.exited is None:
            record.outcome = entry.outcome
        record.worker = entry.worker or record.worker
        record.answers = entry.answers
        numbers = (answer.number for answer in entry.answers)
        self.answered = max(self.answered, *numbers, 0)
        record.began_wall_s = entry.began_wall_s
        record.ended_wall_s = entry.ended_wall_s
        record.failures = entry.failures
        record.crashes = entry.crashes
        record.attempts = entry.attempts
        record.reason = entry.reason
        record.moves, record.moved = entry.moves, entry.moved
        if entry.attempts:
            group.served_at = now
        self.tasks.lost_a_run(record)

    # What follows from an end.

    def _unblock(self, group: GroupRecord, now: float) -> None:
        group.waiting_since = now
        if group.array is not None:
            group.array.unblock()
            assert isinstance(group.waiting, WaitingTasks)
            group.waiting.open()
            return
        for task in group.group.tasks:
            record = self.tasks[task.id]
            if not record.ended:
                record.state = "waiting"
                group.waiting[task.id] = None

    def _end_group(self, group: GroupRecord, now: float) -> list[Entry]:
        entries: list[Entry] = []
        bad = self._first_bad(group)
        for dependent_id in self._dependents.pop(group.id, ()):
            dependent = self.groups[dependent_id]
            dependent.needs_open -= 1
            if bad is not None:
                end = bad.state.replace("cancelled", "was cancelled")
                why = f"it needs {group.id}, where {bad.task.id} {end}"
                entries += self._end_all(dependent, why, now)
            elif dependent.needs_open == 0:
                self._unblock(dependent, now)
        job = self.jobs[group.job]
        job.open -= 1
        if job.open == 0:
            self._end_job(job)
        return entries

    def _end_job(self, job: JobRecord) -> None:
        groups = [self.groups[group.id] for group in job.job.groups]
        states = {state for group in groups for state in self._deciding_states(group)}
        job.state = next(state for state in _WORST if state in states)
        self._ended[job.job.id] = None
        self.ends += 1
        if self.schedules.pop(job.job.id, None) is not None:
            self.schedule_changes += 1
        if job.job.on_end is not None:
            self._just_ended.append(job.job.id)
        while len(self._ended) > ENDED_JOBS_MAX or self._kept > TASKS_KEPT_MAX:
            oldest = next(iter(self._ended), None)
            if oldest is None:
                break
            del self._ended[oldest]
            self._forget(oldest)

    def _first_bad(self, group: GroupRecord) -> TaskRecord | None:
        """Return the first task that makes a group end badly, if one does."""
        if group.array is None:
            bad = (task for task in self._deciding(group) if task.state != "done")
            return next(bad, None)
        place = next(group.array.places(ENDS - {"done"}), None)
        return None if place is None else self.tasks[name_of(group.id, place)]

    def _deciding_states(self, group: GroupRecord) -> Iterable[TaskState]:
        if group.array is not None:
            return group.array.counts()
        return (task.state for task in self._deciding(group))

    def _deciding(self, group: GroupRecord) -> list[TaskRecord]:
        """Return the tasks that decide how a group ended.

        A gang that is done although members failed was done without them.
        """
        tasks = list(self._tasks(group))
        done = sum(task.state == "done" for task in tasks)
        if group.is_gang and done >= group.group.gang_min:
            return [task for task in tasks if task.state != "failed"]
        return tasks

    def _forget(self, job: JobId) -> None:
        for group in self.jobs.pop(job).job.groups:
            self._kept -= cost_of(group)
            if self.groups.pop(group.id).array is not None:
                self.tasks.drop_array(group.id)
                continue
            for task in group.tasks:
                del self.tasks[task.id]

    def _tasks(self, group: GroupRecord) -> Iterator[TaskRecord]:
        return (self.tasks[task.id] for task in group.group.tasks)
