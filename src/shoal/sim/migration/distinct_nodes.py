"""Check the promise about gangs whose tasks want a node each: G4.

- G4: no two tasks of such a gang are assigned to one worker at a time, whether the gang
  starts, grows, is refilled or moves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

from shoal.core.durability.journal import Assigned, Entry, Exited, Finished, Returned
from shoal.model.ids import JobId, NodeId, TaskId
from shoal.model.job import Job
from shoal.sim.checkers.violations import Violations
from shoal.sim.node.host import SimHost


@final
class DistinctNodes:
    """Follows where the tasks of such gangs are, by what is on disk."""

    def __init__(self, violations: Violations, jobs: Mapping[JobId, Job]) -> None:
        self.placed = 0  # tasks of such gangs that were assigned, each time
        self._violations = violations
        self._gang_of = {
            task.id: task.group
            for job in jobs.values()
            for task in job.tasks()
            if task.alone
        }
        self._at: dict[TaskId, NodeId] = {}

    def safe(self, _host: SimHost, entries: Sequence[Entry]) -> None:
        """Note what is on disk now."""
        for entry in entries:
            match entry:
                case Assigned():
                    for place in entry.places:
                        if place.task in self._gang_of:
                            self._assigned(place.task, place.worker)
                case Returned() | Exited() | Finished():
                    self._at.pop(entry.task, None)
                case _:
                    pass

    def _assigned(self, task: TaskId, worker: NodeId) -> None:
        gang = self._gang_of[task]
        for other, where in self._at.items():
            if where == worker and other != task and self._gang_of[other] == gang:
                self._violations.report("G4", f"{task} and {other} are on {worker}")
        self._at[task] = worker
        self.placed += 1
