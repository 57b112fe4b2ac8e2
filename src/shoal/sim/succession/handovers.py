"""What is promised when a node that leaves hands its kept jobs over.

| id | promise |
|---|---|
| S11 | a node that handed a job over starts no more of it than is in the log it gave |
| S12 | in a calm network a node that leaves is rid of its jobs within `HANDED_S` |
| S13 | and no task of them begins again for that |

*Calm* means that no fault has begun but that the node leaves. S13 is not asked of tasks
with outputs: what nobody else has yet is made again. Nor is it asked if the node is a
worker, whose tasks end with it. That nothing is lost is promised as ever (S3, S6).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from shoal.core.durability.journal import Assigned, Entry, Led
from shoal.core.peer import Peer

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.core.events import Event
    from shoal.model.ids import Attempt, JobId, NodeId, TaskId
    from shoal.model.job import Job
    from shoal.protocol.messages import Assignment
    from shoal.protocol.succession.messages import Handover
    from shoal.sim.agenda import Agenda
    from shoal.sim.checkers.violations import Violations
    from shoal.sim.node.host import SimHost

HANDED_S: Final = 3.0


@final
class HandoverPromises:
    """Watches nodes that leave, and what becomes of their jobs."""

    def __init__(
        self, agenda: Agenda, violations: Violations, jobs: dict[JobId, Job]
    ) -> None:
        self.handed = 0  # jobs that somebody else took
        self.is_calm: Callable[[float], bool] = lambda _until: False
        self._agenda, self._violations, self._jobs = agenda, violations, jobs
        self._job_of = {
            task.id: id_ for id_, job in jobs.items() for task in job.tasks()
        }
        self._gave: dict[tuple[NodeId, JobId], tuple[int, dict[Attempt, None]]] = {}
        self._assigned: dict[tuple[NodeId, JobId], dict[Attempt, None]] = {}
        self._leaving: dict[JobId, NodeId] = {}  # until somebody else leads it
        self._left_s: dict[JobId, float] = {}  # when a node that is no worker left
        self._begun: dict[TaskId, float] = {}

    def told(self, host: SimHost, _event: Event, _effects: object) -> None:
        """Note that a node is about to leave, and which jobs it leads."""
        machine = host.machine
        assert isinstance(machine, Peer)
        if machine.scheduler is None:
            return
        succession = machine.scheduler.succession
        for job, record in machine.scheduler.book.jobs.items():
            if record.state == "active" and succession.keepers_of(job):
                self._leaving[job] = host.id
                if host.spec.capacity is None:
                    self._left_s.setdefault(job, self._agenda.now)
                self._agenda.after(HANDED_S, self._look, host, host.life, job)

    def _look(self, host: SimHost, life: int, job: JobId) -> None:
        """Check that somebody else has a job by now, if it goes on."""
        machine = host.machine
        if self._leaving.get(job) != host.id or host.life != life:
            return
        if not isinstance(machine, Peer) or not self.is_calm(self._agenda.now):
            return
        assert machine.scheduler is not None
        if machine.scheduler.book.jobs[job].state == "active":
            what = f"{host.id} leaves, and has {job} after {HANDED_S:.0f} s"
            self._violations.report("S12", what)

    def sent(self, host: SimHost, handover: Handover) -> None:
        """Note that a job was handed over, and what had been assigned by then."""
        if not self._jobs[handover.job].keepers:
            return  # It is forwarded, and may come back before it is let go.
        key = host.id, handover.job
        self._gave[key] = handover.term, {**self._assigned.get(key, {})}

    def assigned(self, host: SimHost, assignment: Assignment) -> None:
        """Check a first assignment."""
        task, job = assignment.task.id, assignment.task.job
        term, attempts = self._gave.get((host.id, job), (-1, {}))
        if assignment.term <= term and assignment.attempt not in attempts:
            what = f"{host.id} starts {task}, which was not in the {job} it handed over"
            self._violations.report("S11", what)

    def began(self, task: TaskId, job: JobId) -> None:
        """Check the beginning of a process."""
        before = self._begun.setdefault(task, self._agenda.now)
        left_s = self._left_s.get(job)
        if left_s is None or before >= left_s or not self.is_calm(self._agenda.now):
            return
        plain = [each.id for each in self._jobs[job].tasks() if not each.work.outputs]
        if task in plain:
            what = f"{task} begins again, and {job} was handed over in a calm network"
            self._violations.report("S13", what)

    def safe(self, host: SimHost, entry: Entry) -> None:
        """Note an entry on disk."""
        if isinstance(entry, Assigned):
            [job] = {self._job_of[place.task] for place in entry.places}
            attempts = self._assigned.setdefault((host.id, job), {})
            attempts.update(dict.fromkeys(place.attempt for place in entry.places))
        if not isinstance(entry, Led) or entry.job not in self._leaving:
            return
        if self._leaving[entry.job] != host.id:
            del self._leaving[entry.job]
            self.handed += 1
