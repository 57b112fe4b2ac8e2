"""Check promises about outputs, code and checkpoints: O1 to O4.

- O1: a result is complete only with its outputs. When a journal records an attempt's
  success, the scheduler's disk has all its outputs.
- O2: a report that waits for its outputs is never lost and never accepted twice.
- O3: a task starts only on a node that has its code, inputs and checkpoint.
- O4: a task is handed the outputs of all tasks that it needs, and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from shoal.core.artifacts.events import OutputsFetched, OutputsLost
from shoal.core.durability.journal import Answered, Entry, Exited, Finished
from shoal.core.events import Effect, Event, Send
from shoal.model.ids import Attempt, GroupId, JobId, NodeId, TaskId
from shoal.model.job import Job
from shoal.protocol.messages import ALL_OUTPUTS, Acknowledgement, Outcome
from shoal.sim.checkers.journals import Journals
from shoal.sim.checkers.violations import Violations
from shoal.sim.node.driver import SimProcess
from shoal.sim.node.host import SimHost
from shoal.sim.node.staging import needed_by


@final
class Outputs:
    """Compares journals with the trees on disk."""

    def __init__(
        self, violations: Violations, journals: Journals, jobs: Mapping[JobId, Job]
    ) -> None:
        self._violations = violations
        self._journals = journals
        self._leaving = frozenset(
            task.id
            for job in jobs.values()
            for task in job.tasks()
            if task.work.outputs
        )
        self._accepted: dict[tuple[type[Entry], Attempt], None] = {}
        self._left: dict[TaskId, str] = {}  # the outputs of tasks that are done
        groups = {group.id: group for job in jobs.values() for group in job.groups}
        self._needed: dict[GroupId, tuple[TaskId, ...]] = {
            group.id: tuple(
                task.id for needed in group.needs for task in groups[needed].tasks
            )
            for group in groups.values()
        }

    def safe(self, host: SimHost, entry: Entry) -> None:
        """Check an entry that is now safe on disk."""
        match entry:
            case Finished(state="done", attempt=Attempt() as attempt):
                self._accept(host, entry, entry.task, attempt, entry.outcome)
                if entry.outcome is not None and entry.outcome.outputs:
                    self._left[entry.task] = entry.outcome.outputs[ALL_OUTPUTS]
            case Exited():
                self._accept(host, entry, entry.task, entry.attempt, entry.outcome)
            case Answered(answer=answer):
                self._accept(host, entry, entry.task, answer.attempt, answer.outcome)
            case _:
                pass

    def started(self, host: SimHost, process: SimProcess) -> None:
        """Check that a new process has its code, inputs and checkpoint."""
        start = process.start
        for tree in needed_by(start):
            if not host.blobs.has_tree(tree):
                what = f"{host.id} starts {start.attempt} without {tree}"
                self._violations.report("O3", what)
        needed = self._needed.get(start.task.group, ())
        right = [self._left[task] for task in needed if task in self._left]
        handed: list[str] = [each.tree for each in start.inputs]
        if sorted(handed) != sorted(right):
            what = f"{start.task.id} is handed {len(handed)} of {len(right)} outputs"
            self._violations.report("O4", what)

    def settled(self, host: SimHost, event: Event, effects: list[Effect]) -> None:
        """Check that a report is acknowledged once its outputs came or are lost."""
        assert isinstance(event, OutputsFetched | OutputsLost)
        place = self._journals.truth(host.id).places.get(event.attempt)
        worker = None if place is None else place.worker
        if worker in (None, host.id):
            return  # Talk within one node is not seen.
        if not any(_acknowledges(effect, worker, event.attempt) for effect in effects):
            what = f"{host.id} forgets the report of {event.attempt}"
            self._violations.report("O2", what)

    def _accept(
        self,
        host: SimHost,
        entry: Entry,
        task: TaskId,
        attempt: Attempt,
        outcome: Outcome | None,
    ) -> None:
        key = (type(entry), attempt)
        if key in self._accepted:
            self._violations.report("O2", f"{attempt} is accepted twice")
        self._accepted[key] = None
        if task not in self._leaving or outcome is None or outcome.exit_code != 0:
            return
        trees = outcome.outputs.values()
        if not trees or not all(map(host.blobs.has_tree, trees)):
            what = f"{host.id} accepts {attempt} of {task} without its outputs"
            self._violations.report("O1", what)


def _acknowledges(effect: Effect, worker: NodeId | None, attempt: Attempt) -> bool:
    return (
        isinstance(effect, Send)
        and effect.peer == worker
        and isinstance(effect.message, Acknowledgement)
        and attempt in effect.message.attempts
    )
