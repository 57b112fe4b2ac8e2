"""What is promised of kept jobs, checked from outside: by disks, wires and processes.

| id | promise |
|---|---|
| S1 | a term of a job has one leader |
| S2 | no task starts in a term once one has started in a later term |
| S3 | a task whose success was acknowledged never starts again |
| S4 | of each task at most one success is acknowledged |
| S5 | a task that runs at most once begins once |
| S6 | a job that was acknowledged ends well, though its scheduler never comes back |
| S7 | at the end one node has the job, and nobody keeps a log of it |
| S8 | when a success is acknowledged, most members have its outputs |
| S9 | at the end the node that has a job has the outputs of all tasks that are done |
| S10 | a task starts with its code and the outputs of all tasks that it needs |
| S14 | a scheduler starts no task of a job that was forwarded to another |
| S15 | a job of which a task has begun is forwarded only if its scheduler leaves |
| S16 | at the end every member of a job that another node has knows that node |
| S17 | in a calm network members name a new leader `TOLD_S` after it took a job up |

What is promised of a node that hands its jobs over is in `handovers`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from shoal.core.durability.journal import (
    Adopted,
    Ceded,
    Entry,
    Exited,
    Finished,
    KeptOver,
    Led,
    Submitted,
)
from shoal.core.events import DepartureNear
from shoal.core.peer import Peer
from shoal.core.timing import BEAT_S
from shoal.model.ids import JobId, NodeId, TaskId
from shoal.protocol.messages import Acknowledgement, Assignment
from shoal.protocol.succession.messages import Handover
from shoal.sim.node.host import HostWatch, SimHost
from shoal.sim.node.staging import needed_by
from shoal.sim.succession.handovers import HandoverPromises

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shoal.core.events import Answer
    from shoal.core.scheduling.scheduler import Scheduler
    from shoal.model.ids import Attempt
    from shoal.model.job import Job
    from shoal.sim.agenda import Agenda
    from shoal.sim.checkers.violations import Violations
    from shoal.sim.node.driver import SimProcess


TOLD_S: Final = BEAT_S


@final
class KeptPromises(HostWatch):
    """Watches a world of kept jobs."""

    def __init__(
        self, agenda: Agenda, violations: Violations, jobs: dict[JobId, Job]
    ) -> None:
        super().__init__()
        self.violations, self._agenda = violations, agenda
        self.handovers = HandoverPromises(agenda, violations, jobs)
        self.acknowledged: dict[JobId, None] = {}  # submissions
        self.refused: list[str] = []
        self.takeovers = 0
        self.forwarded = 0
        self.leaves = False  # whether any scheduler leaves
        self.begun: dict[TaskId, int] = {}  # processes
        self.hosts: Mapping[NodeId, SimHost] = {}
        self._members: dict[JobId, tuple[NodeId, ...]] = {}
        self._left: dict[tuple[NodeId, Attempt], tuple[TaskId, list[str]]] = {}
        self._jobs = jobs
        self._leaders: dict[tuple[JobId, int], NodeId] = {}
        self._latest: dict[JobId, int] = {}  # term in which a task started last
        self._known: dict[Attempt, None] = {}  # attempts that were sent, or adopted
        self._succeeded: dict[tuple[NodeId, Attempt], TaskId] = {}  # on whose disk
        self._had_by: dict[JobId, NodeId] = {}  # jobs that nobody keeps
        self._over: dict[JobId, None] = {}  # of which most members know the end
        self._told: dict[TaskId, Attempt] = {}  # successes that were acknowledged
        self.sent[Assignment] = self._on_assignment
        self.sent[Acknowledgement] = self._on_acknowledgement
        self.sent[Handover] = self._on_handover
        self.facts[DepartureNear] = self.handovers.told

    def answered(self, host: SimHost, answer: Answer) -> None:
        """Note what a client was told."""
        if answer.refused:
            self.refused.append(answer.refused)
        else:
            self.acknowledged[answer.job] = None

    def started(self, host: SimHost, process: SimProcess) -> None:
        """Count the processes of a task."""
        task = process.start.task
        self.begun[task.id] = self.begun.get(task.id, 0) + 1
        if self._jobs[task.job].at_most_once and self.begun[task.id] > 1:
            self.violations.report("S5", f"{task.id} begins again on {host.id}")
        self.handovers.began(task.id, task.job)
        self._check_files(host, process)

    def _check_files(self, host: SimHost, process: SimProcess) -> None:
        start = process.start
        groups = {group.id: group for group in self._jobs[start.task.job].groups}
        needed = groups[start.task.group].needs
        count = sum(len(groups[id_].tasks) for id_ in needed)
        here = [tree for tree in needed_by(start) if host.blobs.has_tree(tree)]
        if len(start.inputs) != count or len(here) < len(needed_by(start)):
            what = f"{start.task.id} starts with {len(here)} trees on {host.id}"
            self.violations.report("S10", what)

    def _note_outputs(self, host: SimHost, entry: Entry) -> None:
        if isinstance(entry, Submitted):
            self._members[entry.job.id] = entry.members
        if isinstance(entry, Finished | Exited) and entry.attempt and entry.outcome:
            trees: list[str] = list(entry.outcome.outputs.values())
            if entry.outcome.exit_code == 0 and trees:
                self._left[host.id, entry.attempt] = entry.task, trees

    def safe(self, host: SimHost, entries: Sequence[Entry]) -> None:
        """Note terms and successes that are on disk."""
        for entry in entries:
            self._note_outputs(host, entry)
            self.handovers.safe(host, entry)
            if isinstance(entry, Led) and entry.alone:
                self.forwarded += self._had_by.get(entry.job) != host.id
                self._had_by[entry.job] = host.id
                self._check_unbegun(host, entry.job)
            elif isinstance(entry, Led):
                self.takeovers += bool(entry.entries)
                self._agenda.after(TOLD_S, self._check_told, host, host.life, entry)
                leader = self._leaders.setdefault((entry.job, entry.term), host.id)
                if leader != host.id:
                    what = f"{leader} and {host.id} lead {entry.job} in {entry.term}"
                    self.violations.report("S1", what)
            elif isinstance(entry, Ceded):
                self._forget(host.id, entry.job)
            elif isinstance(entry, KeptOver):
                self._over[entry.job] = None
            elif isinstance(entry, Adopted):
                self._known.update(dict.fromkeys(name for _, name in entry.names))
            elif (
                isinstance(entry, Finished) and entry.state == "done" and entry.attempt
            ):
                self._succeeded[host.id, entry.attempt] = entry.task

    def _check_told(self, leader: SimHost, life: int, led: Led) -> None:
        """Check that users who ask a member find the job while it goes on."""
        if leader.life != life or not self.handovers.is_calm(self._agenda.now):
            return
        scheduler = _scheduler(leader)
        record = scheduler and scheduler.book.jobs.get(led.job)
        if record is None or (record.state, record.term) != ("active", led.term):
            return
        for member in self._members.get(led.job, ()):
            asked = _scheduler(self.hosts[member])
            at = asked and asked.succession.whereabouts(led.job)
            if asked is not None and leader.id not in (member, at):
                what = f"{member} says that {led.job} is at {at}, not at {leader.id}"
                self.violations.report("S17", what)

    def _check_unbegun(self, host: SimHost, job: JobId) -> None:
        begun = [task.id for task in self._jobs[job].tasks() if task.id in self.begun]
        if begun and not self.leaves:
            what = f"{job} goes to {host.id}, though {begun[0]} has begun"
            self.violations.report("S15", what)

    def _forget(self, node: NodeId, job: JobId) -> None:
        """Forget what a node has accepted of a job that it let go."""
        tasks = {task.id for task in self._jobs[job].tasks()}
        kept = {
            key: task
            for key, task in self._succeeded.items()
            if key[0] != node or task not in tasks
        }
        self._succeeded = kept
        left = self._left.items()
        self._left = {k: v for k, v in left if k[0] != node or v[0] not in tasks}

    def _on_assignment(self, host: SimHost, _: NodeId, message: object) -> None:
        assert isinstance(message, Assignment)
        job, task, term = message.task.job, message.task.id, message.term
        if message.attempt in self._known:
            return  # It is said again, or an earlier scheduler has started it.
        self._known[message.attempt] = None
        self.handovers.assigned(host, message)
        latest = self._latest.get(job, 0)
        if term < latest:
            what = f"{host.id} starts {task} in term {term}, after one in term {latest}"
            self.violations.report("S2", what)
        self._latest[job] = max(term, latest)
        if (by := self._had_by.get(job, host.id)) != host.id:
            what = f"{host.id} starts {task}, which was forwarded to {by}"
            self.violations.report("S14", what)
        if (told := self._told.get(task)) is not None:
            what = f"{task} starts again, though {told} was acknowledged"
            self.violations.report("S3", what)

    def _on_handover(self, host: SimHost, _: NodeId, message: object) -> None:
        assert isinstance(message, Handover)
        self.handovers.sent(host, message)

    def _on_acknowledgement(self, host: SimHost, _: NodeId, message: object) -> None:
        assert isinstance(message, Acknowledgement)
        for attempt in message.attempts:
            self._check_kept(host, attempt)
            task = self._succeeded.get((host.id, attempt))
            if task is None:
                continue
            told = self._told.setdefault(task, attempt)
            if told != attempt:
                what = f"{host.id} acknowledges {attempt} of {task}, after {told}"
                self.violations.report("S4", what)

    def _check_kept(self, host: SimHost, attempt: Attempt) -> None:
        """Check that most members have the outputs of an acknowledged success."""
        task, trees = self._left.pop((host.id, attempt), (TaskId(""), []))
        members = self._members.get(self._job_of(task), ())
        if not trees or not members:
            return
        disks = [self.hosts[member].blobs for member in members]
        having = sum(all(map(blobs.has_tree, trees)) for blobs in disks)
        if having <= len(members) // 2:
            what = f"{host.id} acknowledges {task}; {having} members have its outputs"
            self.violations.report("S8", what)

    def _job_of(self, task: TaskId) -> JobId:
        return JobId(task.partition(".")[0])

    def _check_outputs(self, host: SimHost, scheduler: Scheduler, job: JobId) -> None:
        for task in scheduler.book.jobs[job].job.tasks():
            record = scheduler.book.tasks[task.id]
            if record.state != "done" or record.outcome is None:
                continue
            trees = record.outcome.outputs.values()
            if not all(map(host.blobs.has_tree, trees)):
                what = f"{host.id} has no outputs of {task.id}"
                self.violations.report("S9", what)

    def settle(self, hosts: Sequence[SimHost]) -> None:
        """Check how the world ended."""
        for job in self.acknowledged:
            ends: list[str] = []
            for host in hosts:
                if (scheduler := _scheduler(host)) is None:
                    continue
                if (record := scheduler.book.jobs.get(job)) is not None:
                    ends.append(f"{record.state} at {host.id}")
                    self._check_outputs(host, scheduler, job)
                if job in scheduler.succession.others.logs:
                    self.violations.report("S7", f"{host.id} still keeps {job}")
            if job in self._over and not ends:
                continue  # It ended, and its scheduler was lost after that.
            if len(ends) != 1:
                self.violations.report("S7", f"{job} is {ends or 'nowhere'}")
                continue
            if not ends[0].startswith(("done", *self._other_ends(job))):
                self.violations.report("S6", f"{job} is {ends[0]}")
            self._check_known(hosts, job, ends[0].rpartition(" ")[2])

    def _check_known(self, hosts: Sequence[SimHost], job: JobId, at: str) -> None:
        """Check that users who ask any member of a job find who has it.

        A member that was away may name one that let the job go since: that one names
        the next, and a command goes on from there.
        """
        live = {
            host.id: scheduler.succession
            for host in hosts
            if (scheduler := _scheduler(host)) is not None
        }
        for member in self._members.get(job, ()):
            asked = member
            for _ in live:
                if asked != at and asked in live:
                    asked = live[asked].whereabouts(job) or NodeId("")
            if member in live and asked != at:
                what = f"{member} says that {job} is at {asked}, not at {at}"
                self.violations.report("S16", what)

    def _other_ends(self, job: JobId) -> tuple[str, ...]:
        """Return how a job may end that is not tried again when a worker is lost."""
        return ("unknown", "failed") if self._jobs[job].at_most_once else ()


def _scheduler(host: SimHost) -> Scheduler | None:
    """Return the scheduler of a node that is up."""
    return host.machine.scheduler if isinstance(host.machine, Peer) else None
