"""Check promises about what is on disk: I1, I3, I4 and I8.

The checker builds a ledger for each scheduler from journal entries as they become
safe. Messages of nodes and answers to clients must never be ahead of it.
"""

from __future__ import annotations

from typing import Final, final

import msgspec

from shoal.core.allocation.records import AllocationKept
from shoal.core.durability.journal import (
    Adopted,
    Answered,
    ArrayKept,
    ArrayWaits,
    Assigned,
    AttemptPlace,
    Cancelled,
    Ceded,
    DrainSet,
    EndCalled,
    Entry,
    Exited,
    Finished,
    Incarnated,
    JobKept,
    Judged,
    KeptOver,
    Led,
    NeedsKept,
    Removed,
    RestEnded,
    RetriesRenewed,
    Returned,
    Revoked,
    RunKept,
    Saved,
    ScheduleMoved,
    SecretsSealed,
    StandingKept,
    Submitted,
    TaskKept,
    TreeHad,
    UsageAdded,
    Vowed,
)
from shoal.core.events import Answer, Effect, MessageReceived
from shoal.model.ids import Attempt, GroupId, JobId, NodeId, TaskId
from shoal.model.job import Group, Job, TaskState
from shoal.protocol.messages import Acknowledgement, Assignment, Report
from shoal.sim.checkers.violations import Violations
from shoal.sim.clients import Request
from shoal.sim.node.driver import SimProcess
from shoal.sim.node.host import SimHost

CRASHES_MAX: Final = 5


class TaskTruth(msgspec.Struct, kw_only=True):
    """One task according to a journal."""

    state: TaskState = "waiting"
    live: dict[Attempt, AttemptPlace] = msgspec.field(
        default_factory=dict[Attempt, AttemptPlace]
    )
    failures: int = 0
    exited: Attempt | None = None  # of a gang member awaiting the others
    done_by: Attempt | None = None
    answered: dict[Attempt, None] = msgspec.field(default_factory=dict[Attempt, None])

    def knows(self, attempt: Attempt) -> bool:
        """Whether an attempt may end the task."""
        return (
            attempt in self.live or attempt in self.answered or attempt == self.exited
        )


@final
class JournalTruth:
    """The state described by one scheduler's safe entries."""

    def __init__(self) -> None:
        self.generations: dict[int, None] = {}
        self.jobs: dict[JobId, Job] = {}
        self.groups: dict[GroupId, Group] = {}
        self.tasks: dict[TaskId, TaskTruth] = {}
        self.places: dict[Attempt, AttemptPlace] = {}  # all ever assigned
        self.together: dict[
            Attempt, tuple[AttemptPlace, ...]
        ] = {}  # places of one entry
        self.strength: dict[Attempt, int] = {}  # size of its gang, with members kept
        self.cancelled: dict[JobId, None] = {}
        self.changes = 0  # rises with every progress of a task

    def ended(self, job: JobId) -> bool:
        """Whether every task of a job has ended, by an entry or by implication.

        A group that did not succeed ends the groups that need it. Replay infers this
        even if a crash lost the entries that record it.
        """
        hopeless: dict[GroupId, None] = {}
        for group in self.jobs[job].groups:
            states = {self.tasks[task.id].state for task in group.tasks}
            if hopeless and not hopeless.keys().isdisjoint(group.needs):
                hopeless[group.id] = None
            elif not states <= ENDED:
                return False
            elif not states <= DONE:
                hopeless[group.id] = None
        return True


DONE: Final[frozenset[TaskState]] = frozenset({"done"})
ENDED: Final[frozenset[TaskState]] = frozenset(
    {"done", "failed", "cancelled", "unknown"}
)


@final
class Journals:
    """Checks entries, assignments and answers against safe entries."""

    def __init__(self, violations: Violations) -> None:
        self.truths: dict[NodeId, JournalTruth] = {}
        self._violations = violations
        self._bound: dict[Attempt, TaskId] = {}  # an attempt never changes its task
        self._exits: dict[Attempt, list[tuple[NodeId, int]]] = {}  # of real processes
        self._struck: dict[TaskId, int] = {}
        self._preempted: dict[Attempt, None] = {}  # as reported by workers

    def truth(self, node: NodeId) -> JournalTruth:
        """Return the ledger of a node's safe entries."""
        found = self.truths.get(node)
        if found is None:
            found = self.truths[node] = JournalTruth()
        return found

    # From the world.

    def reaped(self, host: SimHost, process: SimProcess) -> None:
        """Note how a real process ended."""
        if process.exit_code is not None:
            exits = self._exits.setdefault(process.start.attempt, [])
            exits.append((host.id, process.exit_code))

    def crashed(self, host: SimHost) -> None:
        """Forget facts that a crashed scheduler may have lost."""
        told = [one for one in self._preempted if one.scheduler == host.id]
        for attempt in told:
            del self._preempted[attempt]

    def poisoned(self, host: SimHost, process: SimProcess) -> None:
        """Count the workers that a task crashed."""
        task = process.start.task.id
        self._struck[task] = struck = self._struck.get(task, 0) + 1
        if struck > CRASHES_MAX:
            self._violations.report("I8", f"{task} takes down worker number {struck}")

    def safe(self, host: SimHost, entry: Entry) -> None:
        """Check an entry that is now safe on disk."""
        truth = self.truth(host.id)
        match entry:
            case Incarnated():
                if entry.generation in truth.generations:
                    what = f"{host.id} lives under generation {entry.generation} twice"
                    self._violations.report("I4", what)
                truth.generations[entry.generation] = None
            case Submitted():
                self._on_submitted(truth, entry.job)
            case Assigned():
                self._on_assigned(truth, entry)
            case Exited():
                self._on_exited(truth, entry)
            case Returned():
                self._on_returned(truth, entry)
            case RetriesRenewed():
                self._on_renewed(truth, entry.task)
            case Finished():
                self._on_finished(truth, entry)
            case Cancelled() | RestEnded():
                self._on_cancelled(truth, entry)
            case (
                Revoked()
                | UsageAdded()
                | NeedsKept()
                | DrainSet()
                | ScheduleMoved()
                | AllocationKept()
            ):
                pass  # No task is affected.
            case Removed() | EndCalled():
                self._on_after_end(truth, entry)
            case Answered():
                self._on_answered(truth, entry)
            case Judged():
                truth.changes += 1
            case (
                RunKept()
                | TaskKept()
                | ArrayKept()
                | ArrayWaits()
                | StandingKept()
                | Led()
                | Adopted()
                | Ceded()
                | JobKept()
                | Vowed()
                | KeptOver()
                | TreeHad()
                | SecretsSealed()
                | Saved()
            ):
                # The first are nothing new, and no simulated disk is ever compacted.
                pass  # Kept jobs have a world of their own: `sim/succession`.

    def _on_after_end(self, truth: JournalTruth, entry: Removed | EndCalled) -> None:
        """Check what happens only to jobs that have ended."""
        if isinstance(entry, Removed):
            promise, what, jobs = "I14", "removed", entry.jobs
        else:
            promise, what, jobs = "I15", "called for", (entry.job,)
        for job in jobs:
            if not truth.ended(job):
                self._violations.report(promise, f"{job} is {what}, and has not ended")

    def answered(self, host: SimHost, answer: Answer, request: Request) -> None:
        """Check an answer to a client against the safe entries."""
        truth = self.truth(host.id)
        kind, order = request
        job = order.errand.job.id
        if answer.refused:
            # Clients here may submit, and cancel only accepted jobs.
            what = f"{host.id} refuses to {kind} {job}: {answer.refused}"
            self._violations.report("I2" if kind == "submit" else "L3", what)
        elif job not in truth.jobs:
            what = f"{host.id} acknowledged {kind} of {job}, which is not on disk"
            self._violations.report("I1", what)
        elif kind == "cancel" and job not in truth.cancelled and not truth.ended(job):
            self._violations.report("I1", f"cancel of {job} is not on disk")

    def assigned(self, host: SimHost, peer: NodeId, message: object) -> None:
        """Check an assignment as it is sent against the safe entries."""
        assert isinstance(message, Assignment)
        truth = self.truth(host.id)
        attempt = message.attempt
        if attempt.generation not in truth.generations:
            what = f"{attempt} is used before its generation is on disk"
            self._violations.report("I4", what)
        place = truth.places.get(attempt)
        if place is None:
            self._violations.report("I4", f"{attempt} is sent, but not on disk")
        elif (place.task, place.worker) != (message.task.id, peer):
            what = f"{attempt} is {place.task} at {place.worker} on disk"
            self._violations.report(
                "I4", f"{what}, sent as {message.task.id} to {peer}"
            )
        bound = self._bound.setdefault(attempt, message.task.id)
        if bound != message.task.id:
            what = f"{attempt} was {bound} and is {message.task.id} now"
            self._violations.report("I4", what)

    def acknowledged(self, host: SimHost, peer: NodeId, message: object) -> None:
        """Check an acknowledgement of reports against the safe entries."""
        assert isinstance(message, Acknowledgement)
        truth = self.truth(host.id)
        for attempt in message.attempts:
            place = truth.places.get(attempt)
            if place is None or attempt != _latest(truth.tasks[place.task]):
                continue  # It ended, or a later attempt replaced it.
            what = f"report of {attempt} is acknowledged, but not on disk"
            self._violations.report("I3", what)

    def reported(
        self, host: SimHost, event: MessageReceived, effects: list[Effect]
    ) -> None:
        """Note that a worker reported an attempt as preempted."""
        report = event.message
        assert isinstance(report, Report)
        if report.outcome.kind == "preempted":
            self._preempted[report.attempt] = None

    # Entries.

    def _on_submitted(self, truth: JournalTruth, job: Job) -> None:
        if job.id in truth.jobs:
            self._violations.report("I1", f"{job.id} is on disk twice")
            return
        truth.changes += 1
        truth.jobs[job.id] = job
        for group in job.groups:
            truth.groups[group.id] = group
            for task in group.tasks:
                truth.tasks[task.id] = TaskTruth()

    def _on_assigned(self, truth: JournalTruth, entry: Assigned) -> None:
        truth.changes += 1
        for place in entry.places:
            task = truth.tasks[place.task]
            if place.attempt in truth.places:
                self._violations.report("I4", f"{place.attempt} is assigned twice")
            if task.state in ENDED:
                what = f"{place.task} has ended, and {place.attempt} is assigned"
                self._violations.report("I3", what)
            truth.places[place.attempt] = place
            truth.together[place.attempt] = entry.places
            task.live[place.attempt] = place
            task.state = "running"
        for place in entry.places:
            group = truth.groups[GroupId(place.task.rpartition(".")[0])]
            if group.gang_min == 0:
                continue
            truth.strength[place.attempt] = sum(
                bool(task.live or task.exited) or task.state == "done"
                for task in (truth.tasks[member.id] for member in group.tasks)
            )

    def _on_returned(self, truth: JournalTruth, entry: Returned) -> None:
        truth.changes += 1
        task = truth.tasks[entry.task]
        if entry.failures > task.failures and entry.attempt in self._preempted:
            what = f"preemption of {entry.attempt} is counted as a failure"
            self._violations.report("PREEMPTION", what)
        task.failures = entry.failures
        task.live.pop(entry.attempt, None)
        task.exited = None
        if entry.attempt in task.answered:
            task.answered.clear()  # They agree that it failed.
            task.live.clear()

    def _on_renewed(self, truth: JournalTruth, task: TaskId) -> None:
        own = GroupId(task.rpartition(".")[0])
        groups = next(
            job.groups
            for job in truth.jobs.values()
            if own in [group.id for group in job.groups]
        )
        gangs = [group for group in groups if group.gang_min > 0]
        for member in (task, *(each.id for gang in gangs for each in gang.tasks)):
            truth.tasks[member].failures = 0

    def _on_finished(self, truth: JournalTruth, entry: Finished) -> None:
        truth.changes += 1
        task = truth.tasks[entry.task]
        if task.state in ENDED:
            if not (task.state == "cancelled" and entry.state == "cancelled"):
                what = f"{entry.task} ended {task.state} and again {entry.state}"
                self._violations.report("I3", what)
            return
        if entry.attempt is None:
            if entry.state == "done":
                self._check_spared(truth, entry)
        elif not task.knows(entry.attempt):
            what = f"{entry.task} ended by {entry.attempt}, which is fenced"
            self._violations.report("I4", what)
        elif entry.state == "done":
            self._check_real(truth, entry.attempt)
        elif entry.state == "failed" and entry.attempt in self._preempted:
            self._check_only_once(truth, entry)
        task.state = entry.state
        task.done_by = entry.attempt if entry.state == "done" else None
        task.live.clear()

    def _on_exited(self, truth: JournalTruth, entry: Exited) -> None:
        truth.changes += 1
        task = truth.tasks[entry.task]
        if entry.attempt not in task.live:
            what = f"{entry.task} exited by {entry.attempt}, which is fenced"
            self._violations.report("I4", what)
        self._check_real(truth, entry.attempt)
        task.live.clear()
        task.exited = entry.attempt

    def _on_answered(self, truth: JournalTruth, entry: Answered) -> None:
        truth.changes += 1
        task, attempt = truth.tasks[entry.task], entry.answer.attempt
        if attempt not in task.live:
            what = f"{entry.task} is answered by {attempt}, which is fenced"
            self._violations.report("I4", what)
        task.live.pop(attempt, None)
        task.answered[attempt] = None

    def _check_real(self, truth: JournalTruth, attempt: Attempt) -> None:
        """Check that the attempt's process exited with 0 on its worker."""
        place = truth.places.get(attempt)
        exits = self._exits.get(attempt, [])
        if place is None or (place.worker, 0) not in exits:
            what = f"{attempt} is taken for a success, it exited {exits}"
            self._violations.report("I3", what)

    def _check_only_once(self, truth: JournalTruth, entry: Finished) -> None:
        """Check that preemption fails only tasks that may not run again."""
        job = truth.jobs[JobId(entry.task.partition(".")[0])]
        if not job.at_most_once:
            what = f"{entry.task} failed because it was preempted"
            self._violations.report("PREEMPTION", what)

    def _check_spared(self, truth: JournalTruth, entry: Finished) -> None:
        """Check that an elastic gang was complete without a task that never ran."""
        group = truth.groups[GroupId(entry.task.rpartition(".")[0])]
        done = sum(truth.tasks[task.id].done_by is not None for task in group.tasks)
        if group.gang_min == 0 or done < group.gang_min:
            self._violations.report("I3", f"{entry.task} is done, and nothing ran")

    def _on_cancelled(self, truth: JournalTruth, entry: Cancelled | RestEnded) -> None:
        truth.changes += 1
        if isinstance(entry, Cancelled):
            truth.cancelled[entry.job] = None
            tasks = truth.jobs[entry.job].tasks()
        else:
            tasks = iter(truth.groups[entry.group].tasks)
        for task in tasks:
            known = truth.tasks[task.id]
            if known.state not in ENDED:
                known.state = "cancelled"
                known.live.clear()


def _latest(task: TaskTruth) -> Attempt | None:
    return next(reversed(task.live), None)
